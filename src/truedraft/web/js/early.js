// @ts-check
/** Runs before the first paint, so that neither language nor theme flashes. Page.js has the switches. */
(() => {
  /** @param {string} key */
  const remembered = (key) => {
    try {
      return localStorage.getItem(`truedraft-${key}`);
    } catch {
      return null; // some browsers forbid storage to pages from the file system
    }
  };
  const asked = new URLSearchParams(location.hash.slice(1)).get("lang") ?? remembered("lang");
  const chinese = asked ? asked === "zh" : navigator.language.startsWith("zh");
  document.documentElement.lang = chinese ? "zh-CN" : "en";
  const theme = remembered("theme");
  if (theme) document.documentElement.dataset.theme = theme;
})();
