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

  /** P_i = min(1, P_{i-1} p(x_i) / q(x_i)), with P_0 = 1 in front. @param {Draft} draft @param {Row[]} p */
  function jointRatios({ tokens, q }, p) {
    const ratios = [1];
    tokens.forEach((x, i) => ratios.push(Math.min(1, (ratios[i] * p[i][x]) / q[i][x])));
    return ratios;
  }

  /** h_i, the chance that the block may end after its i-th token, i = 1 .. k. @param {Draft} draft @param {Row[]} p */
  function blockChances(draft, p) {
    const k = draft.tokens.length;
    return jointRatios(draft, p).slice(1).map((ratio, i) => {
      if (i + 1 === k) return ratio;
      const rest = excess(p[i + 1], draft.q[i + 1], ratio);
      return ratio >= 1 ? 1 : rest / (rest + 1 - ratio);
    });
  }

  /** Block verification: the longest prefix whose own coin says yes. @type {Rule} */
  function block(draft, p, dice) {
    const k = draft.tokens.length;
    let accepted = 0;
    blockChances(draft, p).forEach((chance, i) => {
      if (dice.coin(chance)) accepted = i + 1;
    });
    if (accepted === k) return finish(k, p[k], dice);
    return finish(accepted, residual(p[accepted], draft.q[accepted], jointRatios(draft, p)[accepted]), dice);
  }

  /** For chosen tokens, which have no q: accept with p(x), else draw from p without x. @type {Rule} */
  function targetOnly({ tokens }, p, dice) {
    for (let i = 0; i < tokens.length; i++) {
      const x = tokens[i];
      if (!dice.coin(p[i][x])) return finish(i, residual(p[i], oneHot(x, p[i].length)), dice);
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

  return { block, blockChances, blockSurvival, careless, jointRatios, oneHot, overlap, residual, targetOnly, token };
})();
