// @ts-check
/** The round viewer: what is loaded, which rounds are shown, where the reader stands. */
(() => {
  const { find, fill, make } = Page;
  const SHOWN_TOKENS = 400;

  /** @type {TraceFile | null} */
  let trace = null;
  /** Places of the rounds that pass the filters, and the reader's place among them. */
  let visible = /** @type {number[]} */ ([]);
  let at = 0;
  let name = "";
  let isSample = true;
  /** @type {Problem | null} */
  let problem = null;
  /** @type {number | null} */
  let timer = null;

  const session = () => find("session").value;
  const current = () => (trace && visible.length ? trace.rounds[visible[at]] : null);

  /** @param {TraceFile} file @param {string} called */
  function open(file, called) {
    stop();
    trace = file;
    name = called;
    problem = file.notice;
    const sessions = [...new Set(file.rounds.map((round) => round.session))].sort((a, b) => a - b);
    fill(
      "session",
      make("option", { value: "" }, "*"),
      ...sessions.map((each) => make("option", { value: each }, String(each))),
    );
    find("session-choice").hidden = sessions.length < 2;
    restore();
  }

  /** Filters and place from the address. */
  function restore() {
    if (!trace) return;
    find("vain").checked = Address.read().get("vain") === "1";
    const asked = Address.read().get("session") ?? "";
    find("session").value = [...find("session").options].some((option) => option.value === asked) ? asked : "";
    filter(Address.number("round", 1, 1, trace.rounds.length) - 1);
  }

  /** Apply the filters; stay at this place in the trace, or at the next one that passes. @param {number} place */
  function filter(place) {
    if (!trace) return;
    visible = [];
    trace.rounds.forEach((round, i) => {
      const wanted =
        (session() === "" || round.session === Number(session())) &&
        (!find("vain").checked || TraceFacts.isVain(round));
      if (wanted) visible.push(i);
    });
    const next = visible.findIndex((each) => each >= place);
    at = next < 0 ? Math.max(0, visible.length - 1) : next;
    show();
  }

  /** @param {number} place among the visible rounds */
  function go(place) {
    at = Math.max(0, Math.min(visible.length - 1, place));
    remember();
    showRound();
  }

  function remember() {
    Address.write({
      round: visible[at] ? visible[at] + 1 : null,
      session: session() || null,
      vain: find("vain").checked ? 1 : null,
    });
  }

  function show() {
    const words = RoundsWords.now();
    if (!trace) return showStatus();
    for (const option of find("session").options)
      option.textContent =
        option.value === "" ? Page.say({ en: "all texts", zh: "全部文本" }) : words.session(Number(option.value));
    fill("play-label", timer === null ? words.play : words.pause);
    fill(
      "key",
      ...RoundsWords.ORIGINS.map((origin) =>
        make("li", {}, make("i", { class: `mark is-${origin}` }, "abc"), words.origins[origin]),
      ),
    );
    showStatus();
    showHeader();
    showFigures();
    showRound();
  }

  function showStatus() {
    const words = RoundsWords.now();
    find("status").className = problem ? "notice bad" : "notice";
    fill(
      "status",
      problem
        ? RoundsWords.problemText(problem, problem === trace?.notice ? trace.rounds.length : 0)
        : trace
          ? words.loaded(isSample ? words.sample : name, trace.rounds.length)
          : "",
    );
  }

  function showHeader() {
    const words = RoundsWords.now();
    const header = trace?.header ?? {};
    const rows = ["model", "drafter", "rule", "parameters"].filter(
      (key) => header[key] !== undefined && header[key] !== null,
    );
    fill(
      "facts",
      ...rows.flatMap((key) => [
        make("dt", {}, words.facts[/** @type {"model"} */ (key)]),
        make("dd", { class: "mono" }, RoundsFigures.plain(header[key])),
      ]),
    );
  }

  function showFigures() {
    if (!trace) return;
    const words = RoundsWords.now();
    const chosen =
      session() === "" ? trace.rounds : trace.rounds.filter((round) => round.session === Number(session()));
    const total = TraceFacts.statistics(chosen);
    fill("figures", ...RoundsFigures.figures(total));
    fill("run-time", RoundsFigures.timeBar(total, words.seconds));
    fill("by-position", RoundsFigures.positionTable(total.positions));
  }

  function showRound() {
    const words = RoundsWords.now();
    const round = current();
    const scrub = find("scrub");
    scrub.max = Math.max(0, visible.length - 1);
    scrub.value = at;
    scrub.disabled = !round;
    for (const id of ["first", "back", "next", "end"]) find(id).disabled = !round;
    if (!round) {
      fill("round-title", words.nothing);
      for (const id of ["round-story", "tree", "round-time", "text"]) fill(id);
      return;
    }
    const drafted = round.tokens.length - 1;
    const cut = round.emitted < round.verdict.length;
    fill("round-title", words.title(visible[at] + 1, trace?.rounds.length ?? 0));
    scrub.setAttribute("aria-valuetext", find("round-title").textContent);
    fill(
      "round-story",
      words.story(drafted, TraceFacts.accepted(round), TraceFacts.lastOrigin(round), round.emitted),
      cut ? ` ${words.cut}` : "",
      drafted && round.law in words.law ? ` ${words.lawIs(words.law[/** @type {"chosen"} */ (round.law)])}` : "",
    );
    fill("tree", RoundsTree.draw(round));
    fill(
      "tree-note",
      round.tokens.length > RoundsTree.MOST_DRAWN ? words.treeCut(RoundsTree.MOST_DRAWN, round.tokens.length) : "",
    );
    fill("round-time", RoundsFigures.timeBar(round.seconds, words.milliseconds));
    showText();
    RoundsStrip.draw(find("strip"), trace?.rounds ?? [], visible, at);
  }

  function showText() {
    if (!trace || !visible.length) return;
    const words = RoundsWords.now();
    const round = trace.rounds[visible[at]];
    const spans = TraceFacts.spans(trace.rounds, visible[at]);
    const shown = spans.slice(-SHOWN_TOKENS);
    const prompt = promptOf(round.session);
    fill(
      "text",
      spans.length > shown.length
        ? make("span", { class: "is-earlier" }, words.earlier(spans.length - shown.length))
        : make("span", { class: "is-prompt" }, prompt),
      ...shown.map((span) =>
        make(
          "span",
          {
            class: `mark is-${span.origin}${span.round === visible[at] ? " is-now" : ""}`,
            title: words.origins[span.origin],
            "data-round": span.round,
          },
          span.text,
        ),
      ),
    );
    find("text").scrollTop = find("text").scrollHeight;
  }

  /** @param {number} index */
  function promptOf(index) {
    const prompt = trace?.header.prompt ?? "";
    const own =
      Array.isArray(prompt) && prompt.every((each) => typeof each === "string") ? (prompt[index] ?? "") : prompt;
    const text = typeof own === "string" ? own : JSON.stringify(own);
    return text.length > 2000 ? `…${text.slice(-2000)}` : text;
  }

  function stop() {
    if (timer !== null) clearInterval(timer);
    timer = null;
    fill("play-label", RoundsWords.now().play);
  }

  function playOrPause() {
    if (timer !== null) return stop();
    if (at >= visible.length - 1) go(0);
    timer = setInterval(() => {
      if (at >= visible.length - 1) stop();
      else go(at + 1);
    }, 450);
    fill("play-label", RoundsWords.now().pause);
  }

  /** @param {File | undefined} file */
  async function load(file) {
    if (!file) return;
    fill("status", RoundsWords.now().reading);
    try {
      const read = await Trace.read(file);
      isSample = false;
      Address.write({ round: null, session: null, vain: null });
      open(read, file.name);
    } catch (error) {
      if (!(error instanceof Trace.TraceError)) throw error;
      problem = error.problem;
      showStatus();
    }
  }

  function wire() {
    find("file").addEventListener("change", () => {
      load(find("file").files[0]);
      find("file").value = "";
    });
    find("sample").addEventListener("click", () => {
      isSample = true;
      Address.write({ round: null, session: null, vain: null });
      open(Trace.parse(SampleTrace), "");
    });
    addEventListener("dragover", (event) => event.preventDefault());
    addEventListener("drop", (event) => {
      event.preventDefault();
      load(event.dataTransfer?.files[0]);
    });
    find("scrub").addEventListener("input", () => go(Number(find("scrub").value)));
    find("first").addEventListener("click", () => go(0));
    find("back").addEventListener("click", () => go(at - 1));
    find("next").addEventListener("click", () => go(at + 1));
    find("end").addEventListener("click", () => go(visible.length - 1));
    find("play").addEventListener("click", playOrPause);
    for (const id of ["session", "vain"])
      find(id).addEventListener("change", () => {
        stop();
        filter(visible[at] ?? 0);
        remember();
      });
    find("strip").addEventListener("click", (/** @type {MouseEvent} */ event) =>
      go(RoundsStrip.placeAt(find("strip"), event, visible.length)),
    );
    new ResizeObserver(() => RoundsStrip.draw(find("strip"), trace?.rounds ?? [], visible, at)).observe(find("strip"));
    addEventListener("keydown", (event) => {
      if (
        event.ctrlKey ||
        event.metaKey ||
        event.altKey ||
        /** @type {HTMLElement} */ (event.target).matches("select, input:not([type=checkbox])")
      )
        return;
      const act = { p: "play", ArrowLeft: "back", ArrowRight: "next" }[event.key];
      if (act) find(act).click();
    });
  }

  wire();
  open(Trace.parse(SampleTrace), "");
  Page.start();
  Page.onLook(show);
  Address.onChange(restore);
})();
