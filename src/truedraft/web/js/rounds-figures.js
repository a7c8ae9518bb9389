// @ts-check
/** The figures of a run and of a round: totals, acceptance by position, where the time went. */
const RoundsFigures = (() => {
  const { make } = Page;
  const PARTS = /** @type {const} */ (["draft", "target", "rule", "rest"]);

  /** The run in numbers. @param {ReturnType<typeof TraceFacts.statistics>} total */
  function figures(total) {
    const words = RoundsWords.now();
    const rows = [
      ["rounds", Page.count(total.rounds)],
      ["emitted", Page.count(total.emitted)],
      ["perPass", Page.number(total.tokensPerPass)],
      ["rate", Page.percent(total.acceptanceRate, 1)],
      ["vain", Page.count(total.vain)],
      ["seconds", Page.number(total.seconds)],
      ["speed", total.seconds ? Page.number(total.emitted / total.seconds, 1) : "–"],
    ];
    return rows.map(([id, value]) =>
      make(
        "div",
        {},
        make("dt", {}, words.figures[/** @type {"rounds"} */ (id)]),
        make("dd", { id: `figure-${id}` }, value),
      ),
    );
  }

  /** @param {{tried: number, hits: number}[]} positions */
  function positionTable(positions) {
    const words = RoundsWords.now();
    const shown = positions.slice(0, 16);
    const row = (/** @type {string} */ title, /** @type {string[]} */ cells) =>
      make("tr", {}, make("th", { scope: "row" }, title), ...cells.map((cell) => make("td", {}, cell)));
    return make(
      "tbody",
      {},
      row(
        words.position,
        shown.map((_, j) => String(j + 1)),
      ),
      row(
        words.tried,
        shown.map(({ tried }) => Page.count(tried)),
      ),
      row(
        words.hits,
        shown.map(({ hits }) => Page.count(hits)),
      ),
      row(
        words.share,
        shown.map(({ tried, hits }) => Page.number(hits / tried)),
      ),
    );
  }

  /**
   * @param {{draft: number, target: number, rule: number, rest: number}} seconds
   * @param {(seconds: number) => string} format
   */
  function timeBar(seconds, format) {
    const words = RoundsWords.now();
    const total = PARTS.reduce((sum, part) => sum + seconds[part], 0) || 1;
    const bar = make(
      "div",
      { class: "split" },
      ...PARTS.map((part) => {
        const piece = make("i", { class: `part-${part}` });
        piece.style.flexGrow = String(seconds[part] / total);
        return piece;
      }),
    );
    const key = make(
      "ul",
      { class: "key" },
      ...PARTS.map((part) =>
        make(
          "li",
          {},
          make("i", { class: `part-${part}` }),
          `${words.time[part]} ${format(seconds[part])} (${Page.percent(seconds[part] / total)})`,
        ),
      ),
    );
    return make("div", {}, bar, key);
  }

  /** A value of the header as one line: objects as names and values, without what is not set. @param {unknown} value */
  function plain(value) {
    const parts = value !== null && typeof value === "object" && !Array.isArray(value) ? Object.entries(value) : null;
    const set = parts?.filter(([, item]) => item !== null && item !== false && !(Array.isArray(item) && !item.length));
    const text = set ? set.map(([name, item]) => `${name} ${simple(item)}`).join(" · ") : simple(value);
    return text.length > 400 ? `${text.slice(0, 400)}…` : text;
  }

  /** @param {unknown} value */
  function simple(value) {
    return typeof value === "string" ? value : JSON.stringify(value);
  }

  return { figures, plain, positionTable, timeBar };
})();
