// @ts-check
/** What the dice page shows of a game besides the stage: the pair of distributions, the histogram, the yield. */
const DiceResults = (() => {
  /** Below this the page says that the output is not the target's; looked at often, so far from 0.05. */
  const DOUBT = 1e-6;

  /** @param {...(Node | string)} cells */
  const row = (...cells) => Page.make("tr", {}, ...cells);
  /** @param {string} text @param {string} [name] */
  const head = (text, name) => Page.make("th", { scope: "col", class: name }, text);
  /** @param {string | Node} content @param {string} [name] */
  const cell = (content, name) => Page.make("td", { class: name }, content);

  /**
   * What a correction at this position is drawn from, given nothing about the rest.
   * @param {Game} game
   * @param {number} i
   */
  function correctionWeights(game, i) {
    const p = game.p[i];
    if (i >= game.k) return null;
    if (game.rule === "target-only") return Rules.residual(p, Rules.oneHot(favourite(game.q[i]), p.length));
    return Rules.residual(p, game.q[i]);
  }

  /** @param {ArrayLike<number>} weights */
  function favourite(weights) {
    let best = 0;
    for (let x = 1; x < weights.length; x++) if (weights[x] > weights[best]) best = x;
    return best;
  }

  /**
   * The two distributions of a position as bars, as numbers, or as fields to edit.
   * @param {Game} game @param {number} i @param {((side: "p" | "q", token: number, share: number) => void) | null} edit
   */
  function pairTable(game, i, edit) {
    const { columns } = DiceWords.now();
    const { tokens, p, q } = { tokens: game.pairs.tokens[i], p: game.p[i], q: game.q[i] ?? null };
    const weights = correctionWeights(game, i);
    const rest = weights ? scaled(weights) : null;
    const most = Math.max(...p, ...(q ?? []));
    const top = row(
      head(columns.token),
      head(columns.bars, "wide"),
      head(columns.p),
      head(columns.q),
      head(columns.shared),
      head(columns.rest),
    );
    const rows = tokens.map((token, x) =>
      row(
        Page.make("th", { scope: "row", class: "mono" }, token),
        cell(pairBars(p[x], q ? q[x] : null, most), "wide"),
        cell(number("p", p[x], x)),
        cell(q ? number("q", q[x], x) : "–"),
        cell(q ? Page.number(Math.min(p[x], q[x])) : "–"),
        cell(rest ? Page.number(rest[x]) : "–"),
      ),
    );
    /** @param {"p" | "q"} side @param {number} share @param {number} x */
    function number(side, share, x) {
      if (!edit) return Page.number(share);
      return Page.make("input", {
        type: "number",
        min: 0,
        max: 100,
        step: "any",
        value: Number((share * 100).toFixed(2)),
        "aria-label": DiceWords.now().inPercent(side, tokens[x]),
        "data-side": side,
        "data-token": x,
        change: (event) => edit(side, x, Number(event.target.value) / 100),
      });
    }
    return [Page.make("thead", {}, top), Page.make("tbody", {}, ...rows)];
  }

  /** @param {ArrayLike<number>} weights */
  function scaled(weights) {
    const total = Array.from(weights).reduce((sum, weight) => sum + weight, 0);
    return Array.from(weights, (weight) => weight / total);
  }

  /** p = min + residual above q = min + excess. @param {number} p @param {number | null} q @param {number} most */
  function pairBars(p, q, most) {
    const shared = q === null ? p : Math.min(p, q);
    const bars = [bar(["shared", shared / most], ["rest", (p - shared) / most])];
    if (q !== null) bars.push(bar(["shared", shared / most], ["excess", (q - shared) / most]));
    return Page.make("div", {}, ...bars);
  }

  /** @param {...[string, number]} parts */
  function bar(...parts) {
    return Page.make(
      "div",
      { class: "bar" },
      ...parts.map(([name, share]) => {
        const part = Page.make("i", { class: name });
        part.style.width = `${100 * share}%`;
        return part;
      }),
    );
  }

  /** @param {Game} game @param {number} i */
  function pairNote(game, i) {
    const words = DiceWords.now();
    if (i >= game.k) return words.pairNoteBonus;
    const rate = Simulation.rates(game)[i];
    if (game.rule !== "target-only") return words.pairNote(rate);
    return words.pairNoteChosen(game.pairs.tokens[i][favourite(game.q[i])], rate);
  }

  /** Emitted shares of a position against p. @param {Game} game @param {number} i */
  function histogram(game, i) {
    const { columns } = DiceWords.now();
    const counts = game.tally.counts[i];
    const total = counts.reduce((sum, count) => sum + count, 0);
    const most = Math.max(...game.p[i], ...counts.map((count) => (total ? count / total : 0)));
    const top = row(
      head(columns.token),
      head("", "wide"),
      head(columns.seen),
      head(columns.share),
      head(columns.expected),
    );
    const rows = game.pairs.tokens[i].map((token, x) =>
      row(
        Page.make("th", { scope: "row", class: "mono" }, token),
        cell(seenBar(total ? counts[x] / total : 0, game.p[i][x], total, most), "wide"),
        cell(Page.count(counts[x])),
        cell(total ? Page.number(counts[x] / total, 3) : "–"),
        cell(Page.number(game.p[i][x], 3)),
      ),
    );
    return [Page.make("thead", {}, top), Page.make("tbody", {}, ...rows)];
  }

  /** @param {number} share @param {number} p @param {number} total @param {number} most */
  function seenBar(share, p, total, most) {
    const error = total ? 2 * Math.sqrt((p * (1 - p)) / total) : 0;
    const percent = (/** @type {number} */ value) => `${(100 * Math.max(0, Math.min(value, most))) / most}%`;
    const fillBar = Page.make("i", {}),
      whisker = Page.make("i", { class: "whisker" }),
      mark = Page.make("i", { class: "mark" });
    fillBar.style.width = percent(share);
    whisker.style.left = percent(p - error);
    whisker.style.width = percent(Math.min(p + error, most) - Math.max(p - error, 0));
    mark.style.left = percent(p);
    return Page.make("div", { class: "bar seen" }, fillBar, whisker, mark);
  }

  /**
   * @param {ReturnType<typeof Simulation.fit>} fit
   * @param {number} rounds
   * @returns {"few" | "single" | "good" | "bad"}
   */
  function judge(fit, rounds) {
    if (fit.value === Infinity || fit.tail < DOUBT) return "bad";
    if (rounds < 100) return "few";
    return fit.df === 0 ? "single" : "good";
  }

  /** @param {ReturnType<typeof Simulation.fit>} fit @param {number} rounds */
  function fitNotice(fit, rounds) {
    const words = DiceWords.now().fit;
    const kind = judge(fit, rounds);
    const [title, advice] = words[kind];
    const read = rounds && fit.df ? words.read(fit.value, fit.df, fit.tail) : "";
    return {
      className: kind === "bad" ? "notice bad" : kind === "good" ? "notice good" : "notice",
      content: [Page.make("strong", {}, title), [read, advice].filter(Boolean).join(" ")],
    };
  }

  /** @param {Game} game @param {number} selected @param {(position: number) => void} select */
  function positionButtons(game, selected, select) {
    const { positions } = Simulation.fit(game);
    return positions.map((test, i) =>
      Page.make(
        "button",
        {
          type: "button",
          "aria-pressed": String(i === selected),
          class: test.tail < DOUBT ? "is-off" : "",
          click: () => select(i),
        },
        `${i + 1}`,
        test.df ? ` · P ${DiceWords.tailText(test.tail)}` : "",
      ),
    );
  }

  /** @param {Game} game */
  function yieldFigures(game) {
    const words = DiceWords.now().yield;
    const { rounds, emitted } = game.tally;
    /** @type {[string, string, string][]} */
    const figures = [
      [words.mean, rounds ? Page.number(emitted / rounds, 3) : "–", "mean"],
      [words.theory, Page.number(Simulation.theory(game).mean, 3), "theory"],
      [words.rounds, Page.count(rounds), "rounds"],
      [words.emitted, Page.count(emitted), "emitted"],
    ];
    return figures.map(([term, value, id]) =>
      Page.make("div", {}, Page.make("dt", {}, term), Page.make("dd", { id: `yield-${id}` }, value)),
    );
  }

  /** Columns for the chart: rounds, mean, theory, band. @param {Game} game */
  function yieldSeries(game) {
    const { mean, deviation } = Simulation.theory(game);
    const grid = Array.from({ length: 60 }, (_, i) => 10 ** ((i / 59) * Math.log10(horizon(game))));
    const xs = [...new Set([...game.tally.trail.rounds, ...grid])].sort((a, b) => a - b);
    const measured = new Map(game.tally.trail.rounds.map((rounds, i) => [rounds, game.tally.trail.mean[i]]));
    const width = xs.map((n) => (1.96 * deviation) / Math.sqrt(n));
    return [
      xs.map((n) => n),
      xs.map((n) => measured.get(n)),
      xs.map(() => mean),
      xs.map((_, i) => mean - width[i]),
      xs.map((_, i) => mean + width[i]),
    ];
  }

  /** The right end of the chart. @param {Game} game */
  function horizon(game) {
    return Math.max(1000, game.tally.rounds);
  }

  return { fitNotice, histogram, horizon, judge, pairNote, pairTable, positionButtons, yieldFigures, yieldSeries };
})();
