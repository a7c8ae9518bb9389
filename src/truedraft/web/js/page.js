// @ts-check
/**
 * What all pages share: making elements, the language and theme switches, numbers as text.
 *
 * @typedef {Record<string, string | number | boolean | null | undefined | ((event: any) => void)>} Attributes
 */
const Page = (() => {
  const SVG = "http://www.w3.org/2000/svg";
  const SVG_TAGS = new Set(["svg", "g", "path", "rect", "text", "title", "line", "circle", "tspan"]);

  /** @type {(() => void)[]} */
  const redraws = [];

  /**
   * An element. Children that are strings become text, never markup.
   * @param {string} tag @param {Attributes} [attributes] @param {...(Node | string | null)} children
   * @returns {any}
   */
  function make(tag, attributes = {}, ...children) {
    const node = /** @type {any} */ (
      SVG_TAGS.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag)
    );
    for (const [key, value] of Object.entries(attributes)) {
      if (typeof value === "function") node.addEventListener(key, value);
      else if (key.startsWith("--")) node.style.setProperty(key, String(value));
      else if (value === true) node.setAttribute(key, "");
      else if (value !== false && value !== null && value !== undefined) node.setAttribute(key, String(value));
    }
    for (const child of children) if (child !== null) node.append(child);
    return node;
  }

  /** @param {string} id @returns {any} */
  function find(id) {
    const node = document.getElementById(id);
    if (!node) throw new Error(`no element #${id}`);
    return node;
  }

  /** @param {string} id @param {...(Node | string | null)} children */
  function fill(id, ...children) {
    find(id).replaceChildren(...children.filter((child) => child !== null));
  }

  /** @returns {"en" | "zh"} */
  function language() {
    return document.documentElement.lang === "en" ? "en" : "zh";
  }

  /** The text of the current language. @template T @param {{en: T, zh: T}} texts @returns {T} */
  function say(texts) {
    return texts[language()];
  }

  /** Call now, and again whenever language or theme change. @param {() => void} draw */
  function onLook(draw) {
    redraws.push(draw);
    draw();
  }

  /** @param {string} key @param {string} value */
  function remember(key, value) {
    try {
      localStorage.setItem(`truedraft-${key}`, value);
    } catch {
      // without storage the choice lasts as long as the page
    }
  }

  /** @param {"en" | "zh"} chosen */
  function setLanguage(chosen) {
    document.documentElement.lang = chosen === "zh" ? "zh-CN" : "en";
    remember("lang", chosen);
    Address.write({ lang: chosen });
    look();
  }

  function isDark() {
    const chosen = document.documentElement.dataset.theme;
    return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  }

  function switchTheme() {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    remember("theme", isDark() ? "dark" : "light");
    look();
  }

  function look() {
    const own = document.documentElement.lang;
    document.title = document.documentElement.dataset[own === "en" ? "titleEn" : "titleZh"] ?? document.title;
    for (const node of document.querySelectorAll("[data-label-en]")) {
      const { labelEn = "", labelZh = "" } = /** @type {HTMLElement} */ (node).dataset;
      node.setAttribute("aria-label", own === "en" ? labelEn : labelZh);
    }
    for (const link of document.querySelectorAll("a[data-page]"))
      link.setAttribute("href", `${link.getAttribute("data-page")}#lang=${language()}`);
    redraws.forEach((draw) => draw());
  }

  function start() {
    find("language").addEventListener("click", () => setLanguage(language() === "en" ? "zh" : "en"));
    find("theme").addEventListener("click", switchTheme);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", look);
    Address.onChange(() => {
      const asked = Address.read().get("lang");
      if ((asked === "en" || asked === "zh") && asked !== language()) setLanguage(asked);
    });
    look();
  }

  /** A colour of the style sheet, resolved for the theme at hand, for canvases. @param {string} name */
  function colour(name) {
    const probe = make("span", { hidden: true });
    probe.style.color = `var(--${name})`;
    document.body.append(probe);
    const value = getComputedStyle(probe).color;
    probe.remove();
    return value;
  }

  /** @param {number} value @param {number} [digits] */
  function number(value, digits = 2) {
    return value.toFixed(digits).replace("-", "−");
  }

  /** @param {number} value */
  function count(value) {
    return value.toLocaleString("en-US");
  }

  /** @param {number} value @param {number} [digits] */
  function percent(value, digits = 0) {
    return `${number(100 * value, digits)} %`;
  }

  /** Work in slices of about 10 ms, so that the page stays alive. @param {() => boolean} slice false when done */
  function inSlices(slice) {
    return new Promise((done) => {
      const channel = new MessageChannel();
      channel.port1.onmessage = () => {
        const until = performance.now() + 10;
        do if (!slice()) return done(undefined);
        while (performance.now() < until);
        requestAnimationFrame(() => channel.port2.postMessage(0));
      };
      channel.port2.postMessage(0);
    });
  }

  return { colour, count, fill, find, inSlices, language, make, number, onLook, percent, say, setLanguage, start };
})();
