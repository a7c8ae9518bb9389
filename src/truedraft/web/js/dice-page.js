// @ts-check
/** The dice page: its state, its controls, its address. */
(() => {
  const { find, fill } = Page;
  const edits = new Map(); // "p3" -> shares, as they stand in the address

  /** @type {PresetName} */
  let preset;
  /** @type {Game} */
  let game;
  /** @type {Play | null} */
  let play = null;
  let shown = 0;
  let selected = 0;
  let told = "";
  let busy = false;
  /** @type {number | null} */
  let timer = null;

  /** @type {ReturnType<typeof Charts.lines>} */
  let chart;

  /** Everything from the address; a pasted address does the same. */
  function load() {
    stop();
    preset = Address.choice("preset", Presets.names);
    edits.clear();
    for (let i = 0; i <= Presets.POSITIONS; i++)
      for (const side of i < Presets.POSITIONS ? ["p", "q"] : ["p"]) {
        const shares = Address.numbers(`${side}${i + 1}`);
        if (shares?.length === 6 && shares.every((share) => share >= 0) && shares.some((share) => share > 0))
          edits.set(`${side}${i + 1}`, normal(shares));
      }
    selected = Address.number("at", 1, 1, Presets.POSITIONS + 1) - 1;
    begin();
  }

  /** @param {number[]} shares */
  function normal(shares) {
    const total = shares.reduce((sum, share) => sum + share, 0);
    return shares.map((share) => share / total);
  }

  function pairs() {
    const own = Presets.copy(preset);
    for (const [key, shares] of edits) own[/** @type {"p" | "q"} */ (key[0])][Number(key.slice(1)) - 1] = shares;
    return own;
  }

  /** A fresh game with the settings at hand. */
  function begin() {
    const k = Math.trunc(Address.number("k", Presets.POSITIONS, 1, Presets.POSITIONS));
    const seed = Math.trunc(Address.number("seed", 2, 0, 4294967295));
    game = Simulation.create({ pairs: pairs(), k, rule: Address.choice("rule", Simulation.RULES), seed });
    play = null;
    shown = 0;
    told = "";
    selected = Math.min(selected, k);
    showControls();
    showAll();
  }

  function showControls() {
    for (const input of document.querySelectorAll("input[name]")) {
      const radio = /** @type {HTMLInputElement} */ (input);
      radio.checked = radio.value === (radio.name === "preset" ? preset : game.rule);
    }
    find("k").value = game.k;
    find("k-value").textContent = String(game.k);
    find("seed").value = game.seed;
  }

  function showAll() {
    const words = DiceWords.now();
    fill("preset-note", edits.size ? words.presets.edited : words.presets[preset]);
    fill("rule-note", words.rules[game.rule]);
    fill("play-label", timer === null ? words.play : words.pause);
    showStage();
    showPair();
    showCounts();
  }

  function showStage() {
    const words = DiceWords.now();
    fill("round-name", words.round(game.tally.rounds + (play && shown === DiceStage.steps(play) ? 0 : 1)));
    keepFocus("stage", () => fill("stage", ...DiceStage.cards(game, play, shown, { selected, select })));
    fill("narration", told || DiceStage.narrate(game, play, shown));
  }

  function showPair() {
    const words = DiceWords.now();
    fill("pair-title", selected < game.k ? words.position(selected + 1) : words.bonusPosition(selected + 1));
    keepFocus("pair", () =>
      fill("pair", ...DiceResults.pairTable(game, selected, find("edit").checked ? change : null)),
    );
    fill("pair-note", DiceResults.pairNote(game, selected));
  }

  function showCounts() {
    const { className, content } = DiceResults.fitNotice(Simulation.fit(game), game.tally.rounds);
    find("fit").className = className;
    fill("fit", ...content);
    keepFocus("positions", () => fill("positions", ...DiceResults.positionButtons(game, selected, select)));
    fill("histogram", ...DiceResults.histogram(game, selected));
    fill("yield", ...DiceResults.yieldFigures(game));
    chart?.set(/** @type {uPlot.AlignedData} */ (DiceResults.yieldSeries(game)));
  }

  /**
   * Redrawing replaces elements; the keyboard stays on the one with the same place.
   * @param {string} id
   * @param {() => void} draw
   */
  function keepFocus(id, draw) {
    const inside = () => [...find(id).querySelectorAll("button, input")];
    const place = inside().indexOf(/** @type {any} */ (document.activeElement));
    draw();
    if (place >= 0) inside()[place]?.focus();
  }

  /** @param {number} position */
  function select(position) {
    selected = position;
    Address.write({ at: position ? position + 1 : null });
    showAll();
  }

  /** @param {"p" | "q"} side @param {number} token @param {number} share */
  function change(side, token, share) {
    const row = [...game.pairs[side][selected]];
    row[token] = Number.isFinite(share) ? Math.min(1, Math.max(0, share)) : 0;
    if (row.some((value) => value > 0)) {
      const shares = normal(row);
      edits.set(`${side}${selected + 1}`, shares);
      Address.write({ [`${side}${selected + 1}`]: shares.map((value) => Number(value.toFixed(6))).join(",") });
      begin();
    } else showPair();
  }

  /** Reveal one more throw; after the last one a new round begins. */
  function step() {
    if (busy) return;
    told = "";
    if (!play || shown === DiceStage.steps(play)) {
      play = Simulation.play(game);
      shown = 0;
    }
    shown++;
    if (shown === DiceStage.steps(play)) {
      Simulation.record(game, play.draft, play.verdict);
      showCounts();
    }
    showStage();
  }

  function stop() {
    if (timer !== null) clearInterval(timer);
    timer = null;
    fill("play-label", DiceWords.now().play);
  }

  function playOrPause() {
    if (timer !== null) return stop();
    timer = setInterval(step, 700);
    fill("play-label", DiceWords.now().pause);
    step();
  }

  /** @param {number} rounds */
  async function run(rounds) {
    if (busy) return;
    stop();
    while (play && shown < DiceStage.steps(play)) step(); // a round begun is a round counted
    play = null;
    shown = 0;
    busy = true;
    const mine = game;
    const end = game.tally.rounds + rounds;
    let drawn = performance.now();
    await Page.inSlices(() => {
      if (game !== mine) return false;
      Simulation.run(game, Math.min(500, end - game.tally.rounds));
      if (performance.now() - drawn > 120) {
        drawn = performance.now();
        showCounts();
      }
      return game.tally.rounds < end;
    });
    busy = false;
    if (game !== mine) return;
    told = DiceWords.now().told.ran(rounds);
    showAll();
  }

  /** @param {Record<string, string | number | null>} changes */
  function set(changes) {
    stop();
    Address.write(changes);
    begin();
  }

  function wire() {
    find("presets").addEventListener("change", (/** @type {any} */ event) => {
      preset = event.target.value;
      const forgotten = Object.fromEntries([...edits.keys()].map((key) => [key, null]));
      edits.clear();
      set({ preset, ...forgotten });
    });
    find("rules").addEventListener("change", (/** @type {any} */ event) => set({ rule: event.target.value }));
    find("k").addEventListener("input", () => set({ k: Number(find("k").value) }));
    find("seed").addEventListener("change", () =>
      set({ seed: Math.max(0, Math.min(4294967295, Math.trunc(Number(find("seed").value)) || 0)) }),
    );
    find("edit").addEventListener("change", showPair);
    find("step").addEventListener("click", () => {
      stop();
      step();
    });
    find("play").addEventListener("click", playOrPause);
    find("run-1000").addEventListener("click", () => run(1000));
    find("run-100000").addEventListener("click", () => run(100000));
    find("reset").addEventListener("click", () => {
      stop();
      begin();
    });
    addEventListener("keydown", (event) => {
      if (
        event.ctrlKey ||
        event.metaKey ||
        event.altKey ||
        /** @type {HTMLElement} */ (event.target).matches("input[type=number], textarea")
      )
        return;
      const act = { s: "step", p: "play", r: "run-1000" }[event.key.toLowerCase()];
      if (act) find(act).click();
    });
  }

  wire();
  load();
  Page.start();
  Page.onLook(showAll);
  chart = Charts.lines(find("yield-chart"), {
    height: 280,
    logarithmic: true,
    lines: [
      { colour: "ink", width: 2.5 },
      { colour: "p", dash: [6, 4] },
      { colour: "band", width: 1 },
      { colour: "band", width: 1 },
    ],
    band: [3, 2],
    labels: () => DiceWords.now().chart,
    ranges: () => {
      const { mean, deviation } = Simulation.theory(game);
      const around = Math.max(1.6 * deviation, 0.25); // certain acceptance has no spread, the axis needs some
      return {
        x: [1, DiceResults.horizon(game)],
        y: [Math.max(0.9, mean - around), Math.min(game.k + 1.1, mean + around)],
      };
    },
  });
  showCounts();
  Address.onChange(load);
})();
