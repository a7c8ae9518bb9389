// @ts-check
/** The account page: its state, its controls, its address. */
(() => {
  const { find, fill, make, number } = Page;
  const LONGEST = 16;

  const state = { alpha: 0.7, c: 0.1, k: 4, decay: 1, batch: 1, ridge: Infinity, map: "this" };
  const defaults = { ...state };
  /** Measured rates by position, which take the place of alpha and decay. @type {number[] | null} */
  let measured = null;
  /** @type {ReturnType<typeof Charts.lines>} */
  let chart;

  // Batch and ridge move in tenths of an octave; one step past the end is no ridge at all.
  const fromOctaves = (/** @type {number} */ step) => Math.round(2 ** (step / 10));
  const toOctaves = (/** @type {number} */ value) =>
    value === Infinity ? 101 : Math.min(100, Math.round(10 * Math.log2(value)));

  function load() {
    state.alpha = Address.number("alpha", defaults.alpha, 0, 1);
    state.c = Address.number("c", defaults.c, 0, 10);
    state.k = Math.trunc(Address.number("k", defaults.k, 1, 64));
    state.decay = Address.number("decay", 1, 0, 1);
    state.batch = Math.trunc(Address.number("batch", 1, 1, 65536));
    state.ridge = Address.number("ridge", Infinity, 0.5, 1e9);
    state.map = Address.choice("map", ["this", "best"]);
    const rates = Address.numbers("rates");
    measured = rates && rates.length <= 64 && rates.every((rate) => rate >= 0 && rate <= 1) ? rates : null;
    if (measured) state.k = Math.min(state.k, measured.length);
    find("more").open ||= state.decay < 1 || state.batch > 1 || state.ridge < Infinity;
    show();
  }

  /** @param {Partial<typeof state>} changes @param {number[] | null} [rates] */
  function set(changes, rates = measured) {
    Object.assign(state, changes);
    measured = rates;
    if (measured) state.k = Math.min(state.k, measured.length);
    const written = Object.entries(state).map(([key, value]) => [
      key,
      value === defaults[/** @type {keyof typeof state} */ (key)] ? null : value,
    ]);
    Address.write({ ...Object.fromEntries(written), rates: measured ? measured.join(",") : null });
    show();
  }

  /** @param {number} [alpha] */
  function rates(alpha) {
    if (measured && alpha === undefined) return measured;
    return Account.decayedRates(alpha ?? state.alpha, state.decay, Math.max(LONGEST, state.k));
  }

  /** @param {number[]} all @param {number} c @param {number} k @param {Load} load */
  function gainAt(all, c, k, load) {
    return Account.speedup(Account.expectedTokensByPosition(all.slice(0, k)), k, c, load);
  }

  /** @returns {Facts} */
  function facts() {
    const all = rates();
    const load = { batch: state.batch, ridge: state.ridge };
    return {
      alpha: state.alpha,
      c: state.c,
      k: state.k,
      load,
      tokens: Account.expectedTokensByPosition(all.slice(0, state.k)),
      gain: gainAt(all, state.c, state.k, load),
      best: Account.sweetSpot(all, state.c, load),
    };
  }

  function show() {
    showControls();
    showVerdict();
    showCurve();
    showMap();
    showTables();
  }

  function showControls() {
    const words = AccountWords.now();
    const texts = {
      alpha: measured ? `${number(measured[0])} …` : number(state.alpha),
      c: number(state.c),
      k: String(state.k),
      decay: number(state.decay),
      batch: String(state.batch),
      ridge: state.ridge === Infinity ? words.unbounded : String(state.ridge),
    };
    for (const [id, text] of Object.entries(texts)) fill(`${id}-value`, text);
    const k = find("k");
    k.max = measured ? Math.min(LONGEST, measured.length) : Math.max(LONGEST, state.k);
    for (const id of /** @type {const} */ (["alpha", "c", "k", "decay"])) find(id).value = state[id];
    find("batch").value = toOctaves(state.batch);
    find("ridge").value = toOctaves(state.ridge);
    fill("rates-note", measured ? words.rates(measured) : "");
    for (const input of document.querySelectorAll("input[name=map]")) {
      const radio = /** @type {HTMLInputElement} */ (input);
      radio.checked = radio.value === state.map;
    }
  }

  function showVerdict() {
    const words = AccountWords.now();
    const now = facts();
    const advice = Account.advise(rates(), now.c, now.k, now.load);
    const [title, text] = words.verdicts[advice](now);
    find("verdict").className = advice === "worth-it" ? "notice good" : "notice bad";
    find("verdict").dataset.advice = advice;
    fill("verdict", make("strong", {}, title), text);
    const cost = now.tokens / now.gain;
    const figures = [
      ["gain", `${number(now.gain)}×`],
      ["tokens", number(now.tokens)],
      ["cost", number(cost)],
      ["best", now.best.k ? `${now.best.k} (${number(now.best.gain)}×)` : words.none],
    ];
    fill(
      "figures",
      ...figures.map(([id, value]) =>
        make(
          "div",
          {},
          make("dt", {}, words.figures[/** @type {"gain"} */ (id)]),
          make("dd", { id: `figure-${id}` }, value),
        ),
      ),
    );
  }

  function showCurve() {
    const all = rates(),
      load = { batch: state.batch, ridge: state.ridge };
    const ks = Array.from({ length: Math.min(all.length, Math.max(LONGEST, state.k)) + 1 }, (_, k) => k);
    chart?.set([
      ks,
      ks.map((k) => gainAt(all, state.c, k, load)),
      state.ridge < Infinity ? ks.map((k) => gainAt(all, state.c, k, Account.ALONE)) : ks.map(() => null),
    ]);
  }

  /** The length and the gain that the map shows for a pair of numbers. @param {number} alpha @param {number} c */
  function onMap(alpha, c) {
    const load = { batch: state.batch, ridge: state.ridge };
    if (state.map === "best") return Account.sweetSpot(rates(alpha), c, load);
    return { k: state.k, gain: gainAt(rates(alpha), c, state.k, load) };
  }

  function showMap() {
    fill(
      "map",
      AccountMap.draw(
        (alpha, c) => onMap(alpha, c).gain,
        state,
        (alpha, c) => set({ alpha, c }, null),
      ),
    );
    const { k, gain } = onMap(state.alpha, state.c);
    fill("map-note", AccountWords.now().mapNote(state.alpha, state.c, k, gain));
  }

  function showTables() {
    const words = AccountWords.now();
    const gain = (/** @type {number} */ alpha, /** @type {number} */ c, /** @type {number} */ k) =>
      Account.speedup(Account.expectedTokens(alpha, k), k, c);
    /** @type {[string, string, [string, number][]][]} */
    const tables = [
      ["k = 4, c = 0.1", "α", [0.5, 0.7, 0.9].map((alpha) => [String(alpha), gain(alpha, 0.1, 4)])],
      ["α = 0.7, k = 4", "c", [0.1, 0.3, 0.5].map((c) => [String(c), gain(0.7, c, 4)])],
      ["α = 0.7, c = 0.1", "k", [1, 4, 8].map((k) => [String(k), gain(0.7, 0.1, k)])],
    ];
    fill(
      "tables",
      ...tables.map(([caption, name, rows]) => {
        const best = Math.max(...rows.map(([, value]) => value));
        return make(
          "table",
          {},
          make("caption", {}, caption),
          make(
            "thead",
            {},
            make("tr", {}, make("th", { scope: "col" }, name), make("th", { scope: "col" }, words.speedup)),
          ),
          make(
            "tbody",
            {},
            ...rows.map(([label, value]) =>
              make(
                "tr",
                { class: value < 1 ? "loss" : value === best ? "best" : "" },
                make("th", { scope: "row" }, label),
                make("td", {}, number(value)),
              ),
            ),
          ),
        );
      }),
    );
  }

  /** @param {string} text */
  function use(text) {
    const words = AccountWords.now().input;
    const reading = AccountInput.read(text);
    if ("problem" in reading) return fill("paste-note", reading.problem);
    const { rates: given = null, derived = {}, ...numbers } = reading.numbers;
    const worked = Object.entries(derived);
    set(numbers, given);
    if (numbers.batch !== undefined || numbers.ridge !== undefined) find("more").open = true;
    const used = Object.entries(numbers)
      .map(([name, value]) => `${name} = ${Number(value.toFixed(4))}`)
      .join(", ");
    const missing = ["alpha", "c", "k"].filter((name) => !(name in numbers)).join(", ");
    fill(
      "paste-note",
      words.used(used) + (worked.length ? words.derived(worked) : "") + (missing ? words.missing(missing) : ""),
    );
  }

  async function useFile() {
    const file = find("file").files[0];
    find("file").value = "";
    if (!file) return;
    if (file.size > 5e6) return fill("paste-note", AccountWords.now().input.large(number(file.size / 1e6, 0)));
    const text = await file.text();
    find("paste").value = text.slice(0, 20000);
    use(text);
  }

  function wire() {
    for (const id of /** @type {const} */ (["alpha", "decay"]))
      find(id).addEventListener("input", () => set({ [id]: Number(find(id).value) }, null));
    for (const id of /** @type {const} */ (["c", "k"]))
      find(id).addEventListener("input", () => set({ [id]: Number(find(id).value) }));
    find("batch").addEventListener("input", () => set({ batch: fromOctaves(Number(find("batch").value)) }));
    find("ridge").addEventListener("input", () => {
      const step = Number(find("ridge").value);
      set({ ridge: step > 100 ? Infinity : fromOctaves(step) });
    });
    find("map-mode").addEventListener("change", (/** @type {any} */ event) => set({ map: event.target.value }));
    find("map").addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
      const next = AccountMap.move(event.key, state);
      if (!next) return;
      event.preventDefault();
      set(next, null);
    });
    find("use").addEventListener("click", () => use(find("paste").value));
    find("file").addEventListener("change", useFile);
  }

  wire();
  load();
  Page.start();
  Page.onLook(show);
  chart = Charts.lines(find("curve"), {
    height: 400,
    lines: [
      { colour: "p", width: 2.5 },
      { colour: "muted", dash: [5, 4], width: 1.5 },
    ],
    labels: () => AccountWords.now().curve,
    ranges: () => ({
      x: [0, Math.max(LONGEST, state.k)],
      y: [Math.min(0.8, facts().gain - 0.1), Math.max(1.6, facts().best.gain * 1.12)],
    }),
    under: AccountCurve.shade,
    over: (plot) => AccountCurve.marks(plot, facts()),
  });
  showCurve();
  Address.onChange(load);
})();
