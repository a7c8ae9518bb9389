// @ts-check
/** The two tests behind the read-outs: Pearson's chi-square and the normal band around a mean. */
const Statistics = (() => {
  /** ln Gamma(x), Lanczos approximation with g = 7 and nine terms. @param {number} x */
  function logGamma(x) {
    const terms = [
      0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059,
      12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7,
    ];
    let sum = terms[0];
    for (let i = 1; i < terms.length; i++) sum += terms[i] / (x - 1 + i);
    const t = x + 6.5;
    return 0.5 * Math.log(2 * Math.PI) + (x - 0.5) * Math.log(t) - t + Math.log(sum);
  }

  /** Pr(chi-square with df degrees of freedom >= value). @param {number} value @param {number} df */
  function chiSquareTail(value, df) {
    if (value <= 0 || df <= 0) return 1;
    if (value === Infinity) return 0;
    const a = df / 2,
      x = value / 2;
    const front = Math.exp(a * Math.log(x) - x - logGamma(a));
    return x < a + 1 ? 1 - front * lowerSeries(a, x) : front * upperFraction(a, x);
  }

  /** Series of the lower incomplete gamma function over x^a e^-x. @param {number} a @param {number} x */
  function lowerSeries(a, x) {
    let term = 1 / a,
      sum = term;
    for (let n = 1; term > sum * 1e-17; n++) sum += term *= x / (a + n);
    return sum;
  }

  /** Continued fraction of the upper one over x^a e^-x, by Lentz's method. @param {number} a @param {number} x */
  function upperFraction(a, x) {
    let b = x + 1 - a,
      c = 1e300,
      d = 1 / b,
      h = d;
    for (let n = 1; n < 10000; n++) {
      const an = -n * (n - a);
      b += 2;
      d = 1 / (an * d + b);
      c = b + an / c;
      h *= d * c;
      if (Math.abs(d * c - 1) < 1e-16) break;
    }
    return h;
  }

  /**
   * Pearson's statistic of counts against probabilities. Cells that expect fewer than five are pooled; a count where
   * the probability is 0 makes it infinite.
   * @param {ArrayLike<number>} counts @param {ArrayLike<number>} probabilities
   */
  function chiSquare(counts, probabilities) {
    let total = 0;
    for (let x = 0; x < counts.length; x++) total += counts[x];
    /** @type {{seen: number, expected: number}[]} */
    const cells = [];
    const pooled = { seen: 0, expected: 0 };
    for (let x = 0; x < counts.length; x++) {
      const expected = total * probabilities[x];
      if (!expected && counts[x]) return { value: Infinity, df: 1, tail: 0 };
      if (expected >= 5) cells.push({ seen: counts[x], expected });
      else {
        pooled.seen += counts[x];
        pooled.expected += expected;
      }
    }
    if (pooled.expected >= 5) cells.push(pooled);
    else if (cells.length) {
      // too thin to stand alone: it joins the smallest cell
      const least = cells.reduce((a, b) => (a.expected <= b.expected ? a : b));
      least.seen += pooled.seen;
      least.expected += pooled.expected;
    }
    const value = cells.reduce((sum, { seen, expected }) => sum + (seen - expected) ** 2 / expected, 0);
    const df = Math.max(0, cells.length - 1);
    return { value: df ? value : 0, df, tail: chiSquareTail(df ? value : 0, df) };
  }

  /** Mean and standard deviation of 1 + accepted from Pr(accepted >= i), i = 0 .. k. @param {number[]} survival */
  function yieldMoments(survival) {
    const mean = survival.reduce((sum, chance) => sum + chance, 0);
    const square = survival.reduce((sum, chance, i) => sum + (2 * i + 1) * chance, 0);
    return { mean, deviation: Math.sqrt(Math.max(0, square - mean * mean)) };
  }

  return { chiSquare, chiSquareTail, yieldMoments };
})();
