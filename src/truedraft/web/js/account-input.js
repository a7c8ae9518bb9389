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
 * @property {Record<string, string>} [derived]  which numbers were worked out, and from what
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
    drafted: ["drafted"],
    rounds: ["rounds", "target_passes"],
    parts: ["seconds_by_part"],
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
      if (known && known !== "rates" && known !== "parts") named[known] ??= Number(value);
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

  /** @param {string} name @param {any} value */
  function fits(name, value) {
    if (name === "parts") return value?.draft >= 0 && value?.target > 0;
    if (name !== "rates") return typeof value === "number";
    return (
      Array.isArray(value) && value.length > 0 && value.length <= 64 && value.every((rate) => rate >= 0 && rate <= 1)
    );
  }

  /** Work out what is missing from what was counted. @param {Record<string, any>} found @returns {Numbers} */
  function complete({ tokens, accepted, drafted, rounds, parts, ...numbers }) {
    /** @type {Record<string, string>} */
    const derived = {};
    if (numbers.k === undefined && drafted > 0 && rounds > 0) {
      numbers.k = Math.min(64, Math.max(1, Math.round(drafted / rounds)));
      derived.k = "drafted / rounds";
    }
    if (numbers.c === undefined && drafted > 0 && rounds > 0 && parts) {
      numbers.c = parts.draft / drafted / (parts.target / rounds); // a chain's: one step a drafted token
      derived.c = "seconds_by_part";
    }
    const [alpha, source] = numbers.alpha === undefined ? alphaOf(numbers, tokens, accepted) : [];
    if (alpha !== undefined && source) {
      numbers.alpha = alpha;
      derived.alpha = source;
    }
    return Object.keys(numbers).length ? { ...numbers, derived } : numbers;
  }

  /** @param {Numbers} numbers @param {number} tokens @param {number} accepted @returns {[number?, string?]} */
  function alphaOf({ rates, k = 0 }, tokens, accepted) {
    if (rates) return [rates[0], "acceptance_by_position"];
    if (k >= 1 && tokens !== undefined) return [Account.alphaFrom(tokens, k), "tokens_per_pass"];
    if (k >= 1 && accepted !== undefined) return [Account.alphaFrom(1 + accepted * k, k), "acceptance_rate"];
    return [];
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
