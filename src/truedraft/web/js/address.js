// @ts-check
/**
 * The page's state in its address, after the #, so that a view can be shared and works from the file system too.
 * Values that equal their default are left out.
 */
const Address = (() => {
  /** @returns {URLSearchParams} */
  function read() {
    return new URLSearchParams(location.hash.slice(1));
  }

  /** Change some values; null removes one. @param {Record<string, string | number | null>} changes */
  function write(changes) {
    const state = read();
    for (const [key, value] of Object.entries(changes)) {
      if (value === null) state.delete(key);
      else state.set(key, String(value));
    }
    const text = state.toString().replaceAll("%2C", ",");
    history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search);
  }

  /**
   * A number from the address, or the default when it is missing, malformed or out of range.
   * @param {string} key @param {number} fallback @param {number} least @param {number} most
   */
  function number(key, fallback, least, most) {
    const text = read().get(key);
    const value = text === null || text.trim() === "" ? NaN : Number(text);
    return value >= least && value <= most ? value : fallback;
  }

  /** One of the choices, or the first. @template {string} T @param {string} key @param {readonly T[]} choices */
  function choice(key, choices) {
    const value = read().get(key);
    return choices.find((item) => item === value) ?? choices[0];
  }

  /** Numbers separated by commas, or null. @param {string} key */
  function numbers(key) {
    const values = (read().get(key) ?? "").split(",").map((text) => (text.trim() ? Number(text) : NaN));
    return values.every(Number.isFinite) ? values : null;
  }

  /** Called when somebody pastes another address into the open page. @param {() => void} act */
  function onChange(act) {
    addEventListener("hashchange", act);
  }

  return { choice, number, numbers, onChange, read, write };
})();
