// @ts-check
/**
 * Seeded randomness: the same seed gives the same rounds in every browser.
 *
 * @typedef {() => number} Uniform  a number in [0, 1)
 * @typedef {object} Dice  all randomness of a round, as `core.Dice`
 * @property {(probability: number) => boolean} coin
 * @property {(weights: ArrayLike<number>) => number} categorical  an index, never one of weight 0
 */
const Random = (() => {
  /** Chris Doty-Humphrey's sfc32 (PractRand), 53 bits a number. @param {number} seed @returns {Uniform} */
  function seeded(seed) {
    let a = 0x9e3779b9,
      b = 0x243f6a88,
      c = seed | 0,
      counter = 1;
    const word = () => {
      const out = (((a + b) | 0) + counter) | 0;
      counter = (counter + 1) | 0;
      a = b ^ (b >>> 9);
      b = (c + (c << 3)) | 0;
      c = (((c << 21) | (c >>> 11)) + out) | 0;
      return out >>> 0;
    };
    for (let i = 0; i < 16; i++) word(); // seeds that differ in one bit have drifted apart by then
    return () => ((word() >>> 5) * 67108864 + (word() >>> 6)) / 9007199254740992;
  }

  /** @param {Uniform} uniform @returns {Dice} */
  function dice(uniform) {
    return {
      coin: (probability) => uniform() < probability,
      categorical: (weights) => pick(weights, uniform()),
    };
  }

  /** The index at which the running sum passes u of the total. @param {ArrayLike<number>} weights @param {number} u */
  function pick(weights, u) {
    let left = 0;
    for (let x = 0; x < weights.length; x++) left += weights[x];
    left *= u;
    let last = 0;
    for (let x = 0; x < weights.length; x++) {
      if (weights[x] <= 0) continue;
      left -= weights[x];
      last = x;
      if (left < 0) break;
    }
    return last;
  }

  return { dice, pick, seeded };
})();
