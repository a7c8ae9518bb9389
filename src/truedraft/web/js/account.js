// @ts-check
/**
 * The account of speculation: twin of `planning/account.py`, which has the sources; a test holds the two together.
 * `rates` are acceptance rates per draft position, `c` is draft step time over target step time.
 *
 * @typedef {{batch: number, ridge: number}} Load  sequences in a pass, and tokens in a pass at which it stops being flat
 * @typedef {"worth-it" | "other-length" | "past-the-ridge" | "draft-too-expensive" | "acceptance-too-low"} Advice
 */
const Account = (() => {
  const WORTHWHILE = 1.05;
  const ORDINARY_ALPHA = 0.8;
  const ORDINARY_C = 0.1;

  /** @type {Load} */
  const ALONE = { batch: 1, ridge: Infinity };

  /** @param {number} alpha @param {number} k */
  function expectedTokens(alpha, k) {
    return expectedTokensByPosition(new Array(k).fill(alpha));
  }

  /** 1 + sum_j prod_{i<=j} rates[i]. @param {ArrayLike<number>} rates */
  function expectedTokensByPosition(rates) {
    let tokens = 1;
    for (let j = rates.length - 1; j >= 0; j--) tokens = 1 + rates[j] * tokens;
    return tokens;
  }

  /** The alpha at which k drafts yield so many tokens a round. @param {number} tokens @param {number} k */
  function alphaFrom(tokens, k) {
    let low = 0,
      high = 1;
    for (let halving = 0; halving < 60; halving++) {
      const alpha = (low + high) / 2;
      if (expectedTokens(alpha, k) < tokens) low = alpha;
      else high = alpha;
    }
    return (low + high) / 2;
  }

  /** alpha, alpha decay, alpha decay^2, ... @param {number} alpha @param {number} decay @param {number} k */
  function decayedRates(alpha, decay, k) {
    const rates = [];
    for (let j = 0; j < k; j++) {
      rates.push(alpha);
      alpha *= decay;
    }
    return rates;
  }

  /** @param {number} peakFlops @param {number} bandwidth @param {number} bytesPerParameter */
  function ridgeOf(peakFlops, bandwidth, bytesPerParameter) {
    return ((peakFlops / bandwidth) * bytesPerParameter) / 2;
  }

  /** @param {number} tokens @param {number} ridge */
  function passCost(tokens, ridge) {
    return Math.max(1, tokens / ridge);
  }

  /** @param {number} tokens emitted a round @param {number} k @param {number} c @param {Load} [load] */
  function speedup(tokens, k, c, { batch, ridge } = ALONE) {
    const step = passCost(batch, ridge);
    return (tokens * step) / (k * c * step + passCost(batch * (k + 1), ridge));
  }

  /**
   * The best k from 0 to rates.length and its speedup.
   * @param {number[]} rates
   * @param {number} c
   * @param {Load} [load]
   */
  function sweetSpot(rates, c, load = ALONE) {
    let best = { k: 0, gain: 1 };
    for (let k = 1; k <= rates.length; k++) {
      const gain = speedup(expectedTokensByPosition(rates.slice(0, k)), k, c, load);
      if (gain > best.gain) best = { k, gain };
    }
    return best;
  }

  /** @param {number[]} rates @param {number} c @param {number} k @param {Load} [load] @returns {Advice} */
  function advise(rates, c, k, load = ALONE) {
    if (speedup(expectedTokensByPosition(rates.slice(0, k)), k, c, load) >= WORTHWHILE) return "worth-it";
    if (sweetSpot(rates, c, load).gain >= WORTHWHILE) return "other-length";
    if (sweetSpot(rates, c).gain >= WORTHWHILE) return "past-the-ridge";
    const cheaper = sweetSpot(rates, Math.min(c, ORDINARY_C)).gain;
    const closer = sweetSpot(
      rates.map((rate) => Math.max(rate, ORDINARY_ALPHA)),
      c,
    ).gain;
    return cheaper > closer ? "draft-too-expensive" : "acceptance-too-low";
  }

  return {
    ALONE,
    WORTHWHILE,
    advise,
    alphaFrom,
    decayedRates,
    expectedTokens,
    expectedTokensByPosition,
    passCost,
    ridgeOf,
    speedup,
    sweetSpot,
  };
})();
