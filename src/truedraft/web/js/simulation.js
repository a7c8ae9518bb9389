// @ts-check
/**
 * Rounds on fixed pairs of distributions, counted. It knows no element of the page.
 *
 * @typedef {"token" | "block" | "target-only" | "careless"} RuleName
 * @typedef {{pairs: Pairs, k: number, rule: RuleName, seed: number}} Setting
 * @typedef {object} Coin  what decided about one drafted token
 * @property {number} position  from 0
 * @property {number} probability
 * @property {boolean} passed
 * @property {number | null} u  null where the target drew a token instead
 * @property {number | null} drawn  that token
 * @typedef {{draft: Draft, coins: Coin[], verdict: Verdict}} Play  one round with all it threw
 * @typedef {Setting & {p: Float64Array[], q: Float64Array[], uniform: Uniform, dice: Dice, tally: Tally}} Game
 * @typedef {object} Tally
 * @property {number} rounds
 * @property {number} emitted  tokens
 * @property {number[][]} counts  [k + 1][6], tokens emitted at each position
 * @property {number[]} lengths  [k + 1], rounds by accepted tokens
 * @property {{rounds: number[], mean: number[]}} trail  the mean yield after so many rounds
 */
const Simulation = (() => {
  /** @type {readonly RuleName[]} */
  const RULES = ["token", "block", "target-only", "careless"];

  /** @type {Record<RuleName, Rule>} */
  const JUDGES = {
    token: Rules.token,
    block: Rules.block,
    "target-only": Rules.targetOnly,
    careless: Rules.careless,
  };

  /** @param {Setting} setting @returns {Game} */
  function create(setting) {
    const { pairs, k, seed } = setting;
    const p = pairs.p.slice(0, k + 1).map((row) => Float64Array.from(row));
    const q = pairs.q.slice(0, k).map((row) => Float64Array.from(row));
    const uniform = Random.seeded(seed);
    return { ...setting, p, q, uniform, dice: Random.dice(uniform), tally: emptyTally(k, p[0].length) };
  }

  /** @param {number} k @param {number} size @returns {Tally} */
  function emptyTally(k, size) {
    return {
      rounds: 0,
      emitted: 0,
      counts: Array.from({ length: k + 1 }, () => new Array(size).fill(0)),
      lengths: new Array(k + 1).fill(0),
      trail: { rounds: [], mean: [] },
    };
  }

  /** @param {Game} game @param {Dice} dice @returns {Draft} */
  function bet(game, dice) {
    const chosen = game.rule === "target-only";
    return { tokens: game.q.map((row) => (chosen ? argmax(row) : dice.categorical(row))), q: game.q };
  }

  /** @param {ArrayLike<number>} row */
  function argmax(row) {
    let best = 0;
    for (let x = 1; x < row.length; x++) if (row[x] > row[best]) best = x;
    return best;
  }

  /**
   * One round, not yet counted, with every number thrown, in the order of the throws.
   * @param {Game} game
   * @returns {Play}
   */
  function play(game) {
    const draft = bet(game, game.dice);
    /** @type {Coin[]} */
    const coins = [];
    const last = game.rule === "block" ? Rules.jointRatios(draft, game.p).length - 2 : 0;
    const verdict = JUDGES[game.rule](draft, game.p, {
      coin(probability) {
        const u = game.uniform();
        const position = game.rule === "block" ? last - coins.length : coins.length;
        coins.push({ position, probability, passed: u < probability, u, drawn: null });
        return u < probability;
      },
      categorical(weights) {
        const drawn = game.dice.categorical(weights);
        const position = coins.length;
        if (game.rule === "target-only" && position < game.k) {
          const x = draft.tokens[position];
          coins.push({ position, probability: weights[x], passed: drawn === x, u: null, drawn });
        }
        return drawn;
      },
    });
    return { draft, coins: coins.filter((coin) => coin.position >= 0), verdict }; // h_0 = 1 is no question
  }

  /** @param {Game} game @param {Draft} draft @param {Verdict} verdict */
  function record({ tally }, draft, verdict) {
    for (let i = 0; i < verdict.accepted; i++) tally.counts[i][draft.tokens[i]]++;
    tally.counts[verdict.accepted][verdict.token]++;
    tally.lengths[verdict.accepted]++;
    tally.rounds++;
    tally.emitted += verdict.accepted + 1;
    const { rounds, mean } = tally.trail;
    if (!rounds.length || tally.rounds >= rounds[rounds.length - 1] * 1.02) {
      rounds.push(tally.rounds);
      mean.push(tally.emitted / tally.rounds);
    }
  }

  /** @param {Game} game @param {number} rounds */
  function run(game, rounds) {
    const judge = JUDGES[game.rule];
    for (let n = 0; n < rounds; n++) {
      const draft = bet(game, game.dice);
      record(game, draft, judge(draft, game.p, game.dice));
    }
  }

  /** Acceptance rate of each position, given that all before were accepted one by one. @param {Game} game */
  function rates({ rule, p, q }) {
    return q.map((row, i) => (rule === "target-only" ? p[i][argmax(row)] : Rules.overlap(p[i], row)));
  }

  /** Pr(at least i drafted tokens stand), i = 0 .. k. @param {Game} game */
  function survival(game) {
    if (game.rule === "block") return Rules.blockSurvival(game.p, game.q);
    const chances = [1];
    for (const rate of rates(game)) chances.push(chances[chances.length - 1] * rate);
    return chances;
  }

  /**
   * The tokens that a round yields on average, by the account's own function, and their deviation.
   * @param {Game} game
   */
  function theory(game) {
    const known = theories.get(game) ?? theoryOf(game);
    theories.set(game, known);
    return known;
  }

  /** @type {WeakMap<Game, {mean: number, deviation: number}>} */
  const theories = new WeakMap();

  /** @param {Game} game */
  function theoryOf(game) {
    const moments = Statistics.yieldMoments(survival(game));
    const mean = game.rule === "block" ? moments.mean : Account.expectedTokensByPosition(rates(game));
    return { mean, deviation: moments.deviation };
  }

  /** Chi-square of every position and of all together. @param {Game} game */
  function fit({ tally, p }) {
    const positions = tally.counts.map((counts, i) => Statistics.chiSquare(counts, p[i]));
    const value = positions.reduce((sum, test) => sum + test.value, 0);
    const df = positions.reduce((sum, test) => sum + test.df, 0);
    return { positions, value, df, tail: Statistics.chiSquareTail(value, df) };
  }

  return { RULES, create, fit, play, rates, record, run, survival, theory };
})();
