// @ts-check
/**
 * The acceptance rules on chains: twins of `truedraft.verify`, held together by a test that replays Python's verdicts.
 * p and q are the target's and the draft's distributions; p has one row more than q, the bonus position.
 *
 * @typedef {ArrayLike<number>} Row  probabilities over the vocabulary
 * @typedef {object} Draft
 * @property {number[]} tokens  x_1 .. x_k
 * @property {Row[]} q  the distribution each was drawn from; not looked at by `targetOnly`
 * @typedef {object} Verdict
 * @property {number} accepted  how many drafted tokens stand
 * @property {number} token  the one after them: bonus when all stand, else the correction
 * @property {Row} weights  what that token was drawn from, not normalised
 * @typedef {(draft: Draft, p: Row[], dice: Dice) => Verdict} Rule
 */
const Rules = (() => {
  /** [scale p - q]+ , what the draft did not already cover. @param {Row} p @param {Row} q @param {number} [scale] */
  function residual(p, q, scale = 1) {
    const rest = new Float64Array(p.length);
    let sum = 0;
    for (let x = 0; x < rest.length; x++) sum += rest[x] = Math.max(scale * p[x] - q[x], 0);
    return sum > 0 ? rest : p; // nothing left means p = q: a rejection had probability 0 and is rounding
  }

  /** sum_x [scale p - q]+ @param {Row} p @param {Row} q @param {number} scale */
  function excess(p, q, scale) {
    let sum = 0;
    for (let x = 0; x < p.length; x++) sum += Math.max(scale * p[x] - q[x], 0);
    return sum;
  }

  /** @param {number} accepted @param {Row} weights @param {Dice} dice @returns {Verdict} */
  function finish(accepted, weights, dice) {
    return { accepted, token: dice.categorical(weights), weights };
  }

  /** Token-level rejection. @type {Rule} */
  function token({ tokens, q }, p, dice) {
    for (let i = 0; i < tokens.length; i++) {
      const x = tokens[i];
      if (!dice.coin(Math.min(1, p[i][x] / q[i][x]))) return finish(i, residual(p[i], q[i]), dice);
    }
    return finish(tokens.length, p[tokens.length], dice);
  }

  /**
   * P_0 = 1, P_i = min(1, P_{i-1} p(x_i) / q(x_i)), up to the last that is positive.
   * @param {Draft} draft
   * @param {Row[]} p
   */
  function jointRatios({ tokens, q }, p) {
    const ratios = [1];
    for (let i = 0; i < tokens.length; i++) {
      const ratio = p[i][tokens[i]] / q[i][tokens[i]];
      if (ratio <= 0) break;
      ratios.push(Math.min(1, ratios[i] * ratio));
    }
    return ratios;
  }

  /**
   * h_i, the chance that the block may end after its i-th token.
   * @param {Draft} draft
   * @param {Row[]} p
   * @param {number} i
   * @param {number} ratio P_i
   */
  function blockChance({ tokens, q }, p, i, ratio) {
    if (i === tokens.length || ratio >= 1) return ratio;
    const rest = excess(p[i], q[i], ratio);
    return rest / (rest + 1 - ratio);
  }

  /** Block verification: the longest prefix whose own coin says yes, so the longest is asked first. @type {Rule} */
  function block(draft, p, dice) {
    const ratios = jointRatios(draft, p);
    const k = draft.tokens.length;
    let i = ratios.length - 1;
    while (!dice.coin(blockChance(draft, p, i, ratios[i]))) i--;
    return finish(i, i === k ? p[k] : residual(p[i], draft.q[i], ratios[i]), dice);
  }

  /** For chosen tokens, which have no q: draw from p, go on if the draw is what was drafted. @type {Rule} */
  function targetOnly({ tokens }, p, dice) {
    for (let i = 0; i < tokens.length; i++) {
      const token = dice.categorical(p[i]);
      if (token !== tokens[i]) return { accepted: i, token, weights: p[i] };
    }
    return finish(tokens.length, p[tokens.length], dice);
  }

  /** WRONG on purpose: corrects with p instead of the residual. @type {Rule} */
  function careless({ tokens, q }, p, dice) {
    for (let i = 0; i < tokens.length; i++) {
      const x = tokens[i];
      if (!dice.coin(Math.min(1, p[i][x] / q[i][x]))) return finish(i, p[i], dice);
    }
    return finish(tokens.length, p[tokens.length], dice);
  }

  /** @param {number} x @param {number} size */
  function oneHot(x, size) {
    const row = new Float64Array(size);
    row[x] = 1;
    return row;
  }

  /** sum_x min(p(x), q(x)) @param {Row} p @param {Row} q */
  function overlap(p, q) {
    let sum = 0;
    for (let x = 0; x < p.length; x++) sum += Math.min(p[x], q[x]);
    return sum;
  }

  /**
   * Pr(at least i tokens stand), i = 0 .. k, under block verification when no position's pair depends on the tokens
   * before: E[P_i], as Pr(at least i stand | x_1 .. x_i) = P_i. Every distinct value of P_i is followed.
   * @param {Row[]} p @param {Row[]} q
   */
  function blockSurvival(p, q) {
    /** @type {Map<number, number>} */
    let ratios = new Map([[1, 1]]);
    const survival = [1];
    for (let i = 0; i < q.length; i++) {
      const next = new Map();
      let mean = 0;
      for (const [ratio, mass] of ratios)
        for (let x = 0; x < q[i].length; x++) {
          const weight = mass * q[i][x];
          if (!weight) continue;
          const value = Math.min(1, (ratio * p[i][x]) / q[i][x]);
          mean += weight * value;
          if (value && i + 1 < q.length) next.set(value, (next.get(value) || 0) + weight);
        }
      survival.push(mean);
      ratios = next;
    }
    return survival;
  }

  return { block, blockChance, blockSurvival, careless, jointRatios, oneHot, overlap, residual, targetOnly, token };
})();
