// @ts-check
/**
 * Reads the three numbers from pasted text or from a JSON file. JSON is searched through; the first value found under
 * a known name counts.
 *
 * @typedef {object} Numbers
 * @property {number} [alpha]
 * @property {number} [c]
 * @property {number} [k]
 * @property {number} [batch]
 * @property {number} [ridge]
 * @property {number[]} [rates]
 * @property {string} [derived]  the name of the value that alpha was worked out from
 * @typedef {{numbers: Numbers} | {problem: string}} Reading
 */
const AccountInput = (() => {
  /** @type {Record<string, string[]>} */
  const NAMES = {
    alpha: ["alpha"],
    c: ["c", "cost_ratio"],
    k: ["k", "depth"],
    batch: ["batch", "batch_size"],
    ridge: ["ridge"],
    rates: ["rates", "acceptance_by_position"],
    tokens: ["tokens_per_pass", "tau"],
    accepted: ["acceptance_rate"],
  };

  /** @type {Record<string, [number, number, string]>} */
  const RANGES = {
    alpha: [0, 1, "0 – 1"],
    c: [0, 10, "0 – 10"],
    k: [1, 64, "1 – 64"],
    batch: [1, 65536, "1 – 65536"],
    ridge: [0.5, 1e9, "> 0.5"],
  };

  /** @param {string} text @returns {Reading} */
  function read(text) {
    const trimmed = text.trim();
    if (trimmed.startsWith("{") || trimmed.startsWith("[")) return readJson(trimmed);
    const bare = trimmed.split(/[\s,;]+/).map(Number);
    if (bare.length === 3 && bare.every(Number.isFinite)) return check({ alpha: bare[0], c: bare[1], k: bare[2] });
    /** @type {Record<string, number>} */
    const named = {};
    for (const [, name, value] of trimmed.matchAll(/([\p{L}_]+)\s*[=:：]\s*(-?[\d.]+(?:e-?\d+)?)/giu)) {
      const known = name === "α" ? "alpha" : Object.keys(NAMES).find((key) => NAMES[key].includes(name.toLowerCase()));
      if (known && known !== "rates") named[known] ??= Number(value);
    }
    return check(complete(named));
  }

  /** @param {string} text @returns {Reading} */
  function readJson(text) {
    let value;
    try {
      value = JSON.parse(text);
    } catch (error) {
      return { problem: AccountWords.now().input.json(String(error instanceof Error ? error.message : error)) };
    }
    return check(complete(search(value)));
  }

  /** Every known name in a JSON value, breadth first: what stands nearer the top counts. @param {unknown} value */
  function search(value) {
    /** @type {Record<string, any>} */
    const found = {};
    const queue = [value];
    for (let i = 0; i < queue.length && i < 100000; i++) {
      const item = queue[i];
      if (item === null || typeof item !== "object") continue;
      for (const [name, inner] of Object.entries(item)) {
        const known = Object.keys(NAMES).find((key) => NAMES[key].includes(name));
        if (known && !(known in found) && fits(known, inner)) found[known] = inner;
        queue.push(inner);
      }
    }
    return found;
  }

  /** @param {string} name @param {unknown} value */
  function fits(name, value) {
    if (name !== "rates") return typeof value === "number";
    return (
      Array.isArray(value) &&
      value.length > 0 &&
      value.length <= 64 &&
      value.every((rate) => typeof rate === "number" && rate >= 0 && rate <= 1)
    );
  }

  /** Work alpha out where only what it leads to was measured. @param {Record<string, any>} found @returns {Numbers} */
  function complete({ tokens, accepted, ...numbers }) {
    if (numbers.alpha !== undefined) return numbers;
    if (numbers.rates) return { ...numbers, alpha: numbers.rates[0], derived: "acceptance_by_position" };
    const { k } = numbers;
    if (k >= 1 && tokens !== undefined)
      return { ...numbers, alpha: Account.alphaFrom(tokens, k), derived: "tokens_per_pass" };
    if (k >= 1 && accepted !== undefined)
      return { ...numbers, alpha: Account.alphaFrom(1 + accepted * k, k), derived: "acceptance_rate" };
    return numbers;
  }

  /** @param {Numbers} numbers @returns {Reading} */
  function check(numbers) {
    const words = AccountWords.now().input;
    if (!Object.keys(numbers).length) return { problem: words.nothing };
    for (const [name, [least, most, range]] of Object.entries(RANGES)) {
      const value = /** @type {any} */ (numbers)[name];
      const whole = (name !== "k" && name !== "batch") || Number.isInteger(value);
      if (value !== undefined && !(value >= least && value <= most && whole))
        return { problem: words.range(name, value, range) };
    }
    return { numbers };
  }

  return { read };
})();
