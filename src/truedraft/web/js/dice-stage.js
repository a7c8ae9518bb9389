// @ts-check
/**
 * One round on the stage: a card a position, revealed throw by throw.
 *
 * A round has 1 + coins + 1 steps: the drafts, each coin, the last token. `shown` counts those revealed; 0 is before.
 *
 * @typedef {object} Face  what a card shows
 * @property {string} className
 * @property {(string | Node)[]} token
 * @property {string[]} facts
 * @property {Coin | null} coin
 * @property {number | null} chance
 * @property {string} outcome
 */
const DiceStage = (() => {
  /** @param {Play} play */
  function steps(play) {
    return play.coins.length + 2;
  }

  /**
   * @param {Game} game @param {Play | null} play @param {number} shown
   * @param {{selected: number, select: (position: number) => void}} choice
   */
  function cards(game, play, shown, { selected, select }) {
    const words = DiceWords.now();
    return Array.from({ length: game.k + 1 }, (_, i) => {
      const face = i < game.k ? draftFace(game, play, shown, i) : bonusFace(game, play, shown);
      return Page.make(
        "li",
        { class: `card ${face.className}${i === selected ? " is-shown" : ""}` },
        Page.make(
          "button",
          {
            type: "button",
            "aria-label": i < game.k ? words.position(i + 1) : words.bonusPosition(i + 1),
            "aria-pressed": String(i === selected),
            click: () => select(i),
          },
          String(i + 1),
          i === game.k ? Page.make("span", {}, words.bonus) : null,
        ),
        Page.make("div", { class: "token" }, ...face.token),
        Page.make("div", { class: "outcome" }, face.outcome),
        Page.make("div", { class: "facts" }, ...face.facts.flatMap((fact) => [fact, Page.make("br")])),
        face.chance === null ? null : gauge(face.chance, face.coin),
      );
    });
  }

  /** @param {number} chance @param {Coin | null} coin */
  function gauge(chance, coin) {
    return Page.make("div", {
      class: coin && coin.u !== null ? "gauge thrown" : "gauge",
      "--chance": chance,
      "--u": coin?.u ?? 0,
    });
  }

  /**
   * The chance that the rule gives a drafted token, and how it says so.
   * @param {Game} game
   * @param {Play} play
   * @param {number} i
   */
  function chanceOf(game, play, i) {
    const x = play.draft.tokens[i];
    const p = game.p[i][x],
      q = game.q[i][x];
    const pair = `p ${Page.number(p)}  q ${Page.number(q)}`;
    if (game.rule === "block") {
      const ratio = Rules.jointRatios(play.draft, game.p)[i + 1] ?? 0;
      const h = ratio && Rules.blockChance(play.draft, game.p, i + 1, ratio);
      return { chance: h, facts: [pair, `h = ${Page.number(h)}`] };
    }
    if (game.rule === "target-only") return { chance: p, facts: [`p = ${Page.number(p)}`] };
    return { chance: Math.min(1, p / q), facts: [pair, `p/q = ${Page.number(p / q)}`] };
  }

  /** @param {Game} game @param {Play | null} play @param {number} shown @param {number} i @returns {Face} */
  function draftFace(game, play, shown, i) {
    const words = DiceWords.now();
    if (!play || shown < 1)
      return { className: "", token: ["·"], facts: [], coin: null, chance: null, outcome: words.waiting };
    const token = game.pairs.tokens[i][play.draft.tokens[i]];
    const { chance, facts } = chanceOf(game, play, i);
    const coin = play.coins.slice(0, Math.max(0, shown - 1)).find(({ position }) => position === i) ?? null;
    const seen = coin ? [...facts, thrown(game, coin)] : facts;
    const base = { token: [token], facts: seen, coin, chance };
    if (shown < steps(play)) return { ...base, ...running(game.rule, coin, shown, play) };
    const { accepted, token: last } = play.verdict;
    if (i < accepted) return { ...base, className: "is-accepted", outcome: `✓ ${words.passed}` };
    if (i > accepted) return { ...base, className: "is-cut", outcome: words.cut };
    const correction = Page.make("b", {}, game.pairs.tokens[i][last]);
    return {
      ...base,
      className: "is-corrected",
      token: [Page.make("s", {}, token), " ", correction],
      outcome: `✎ ${words.corrected}`,
    };
  }

  /** What was thrown for a card. @param {Game} game @param {Coin} coin */
  function thrown(game, { position, u, drawn }) {
    return u === null ? DiceWords.now().drew(game.pairs.tokens[position][drawn ?? 0]) : `u = ${Page.number(u)}`;
  }

  /**
   * A card while the round is still being judged.
   * @param {RuleName} rule
   * @param {Coin | null} coin
   * @param {number} shown
   * @param {Play} play
   */
  function running(rule, coin, shown, play) {
    const words = DiceWords.now();
    if (!coin) {
      const over = rule !== "block" && shown > play.coins.length && !play.coins[play.coins.length - 1].passed;
      return over ? { className: "is-cut", outcome: words.cut } : { className: "", outcome: words.drafted };
    }
    if (rule === "block")
      return {
        className: coin.passed ? "is-accepted" : "",
        outcome: coin.passed ? `✓ ${words.ends}` : `✗ ${words.mayNot}`,
      };
    return coin.passed
      ? { className: "is-accepted", outcome: `✓ ${words.passed}` }
      : { className: "is-corrected is-rejected", outcome: `✗ ${words.rejected}` };
  }

  /** @param {Game} game @param {Play | null} play @param {number} shown @returns {Face} */
  function bonusFace(game, play, shown) {
    const words = DiceWords.now();
    const over = play && shown >= steps(play);
    if (over && play.verdict.accepted === game.k) {
      const token = game.pairs.tokens[game.k][play.verdict.token];
      return {
        className: "is-bonus",
        token: [token],
        facts: [`p ${Page.number(game.p[game.k][play.verdict.token])}`],
        coin: null,
        chance: null,
        outcome: `★ ${words.free}`,
      };
    }
    return {
      className: over ? "is-cut" : "",
      token: ["·"],
      facts: [],
      coin: null,
      chance: null,
      outcome: over ? words.cut : "",
    };
  }

  /** The sentence for the step just revealed. @param {Game} game @param {Play | null} play @param {number} shown */
  function narrate(game, play, shown) {
    const { told } = DiceWords.now();
    if (!play || shown === 0) return told.start;
    if (shown === 1) return told.drafted(game.k);
    if (shown < steps(play)) {
      const coin = play.coins[shown - 2];
      const n = coin.position + 1;
      if (game.rule === "block") return (coin.passed ? told.ends : told.mayNot)(n, coin);
      if (coin.drawn !== null)
        return (coin.passed ? told.drewIt : told.drewOther)(n, game.pairs.tokens[coin.position][coin.drawn]);
      return (coin.passed ? told.passed : told.rejected)(n, coin);
    }
    const { accepted, token } = play.verdict;
    const text = game.pairs.tokens[accepted][token];
    return accepted === game.k ? told.bonus(accepted + 1, text) : told.corrected(accepted + 1, text, game.rule);
  }

  return { cards, narrate, steps };
})();
