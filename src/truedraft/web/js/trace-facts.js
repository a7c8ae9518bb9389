// @ts-check
/**
 * What a trace says: where tokens come from, the text at a round, and the run's statistics, twins of `core.Round` and
 * `core.Statistics`.
 *
 * @typedef {"prompt" | "accepted" | "corrected" | "bonus" | "plain"} Origin
 * @typedef {{text: string, origin: Origin, round: number}} Span  round: place in the list of rounds
 */
const TraceFacts = (() => {
  /** The children of every node. @param {TraceRound} round */
  function children({ parents }) {
    /** @type {number[][]} */
    const all = parents.map(() => []);
    for (let node = 1; node < parents.length; node++) all[parents[node]].push(node);
    return all;
  }

  /** Accepted draft tokens that are part of the text. @param {TraceRound} round */
  function accepted({ path, emitted }) {
    return Math.max(0, Math.min(path.length, emitted));
  }

  /** Depths put to the test with all before accepted, and the text not over. @param {TraceRound} round */
  function tried(round) {
    const levels = accepted(round);
    if (round.emitted <= levels) return levels;
    const node = levels ? round.path[levels - 1] : 0;
    return levels + (children(round)[node].length ? 1 : 0);
  }

  /** Where the last token of a verdict comes from. @param {TraceRound} round @returns {Origin} */
  function lastOrigin(round) {
    if (round.tokens.length === 1) return "plain";
    return children(round)[round.path[round.path.length - 1] ?? 0].length ? "corrected" : "bonus";
  }

  /** The origin of each token that a round added. @param {TraceRound} round @returns {Origin[]} */
  function origins(round) {
    const last = lastOrigin(round);
    return Array.from({ length: Math.max(0, round.emitted) }, (_, i) => (i < round.path.length ? "accepted" : last));
  }

  /** Whether drafting brought nothing: the round drafted, and no draft stands. @param {TraceRound} round */
  function isVain(round) {
    return round.tokens.length > 1 && accepted(round) === 0;
  }

  /**
   * The output of a session after the round at `place`, in spans.
   * @param {TraceRound[]} rounds
   * @param {number} place
   */
  function spans(rounds, place) {
    const session = rounds[place].session;
    /** @type {Span[]} */
    const all = [];
    for (let at = 0; at <= place; at++) {
      const round = rounds[at];
      if (round.session !== session) continue;
      if (round.emitted < 0) all.splice(Math.max(0, all.length + round.emitted)); // a stop string took tokens back
      origins(round).forEach((origin, i) => all.push({ text: round.text[i], origin, round: at }));
    }
    return all;
  }

  /** @param {TraceRound[]} rounds */
  function statistics(rounds) {
    const total = { rounds: 0, emitted: 0, drafted: 0, accepted: 0, vain: 0, draft: 0, target: 0, rule: 0, rest: 0 };
    /** @type {{tried: number, hits: number}[]} */
    const positions = [];
    for (const round of rounds) {
      const stand = accepted(round),
        levels = tried(round);
      total.rounds++;
      total.emitted += round.emitted;
      total.drafted += round.tokens.length - 1;
      total.accepted += stand;
      total.vain += isVain(round) ? 1 : 0;
      for (const part of /** @type {const} */ (["draft", "target", "rule", "rest"]))
        total[part] += round.seconds[part] / round.batch;
      for (let j = 0; j < levels; j++) {
        positions[j] ??= { tried: 0, hits: 0 };
        positions[j].tried++;
        if (j < stand) positions[j].hits++;
      }
    }
    return {
      ...total,
      positions,
      seconds: total.draft + total.target + total.rule + total.rest,
      tokensPerPass: total.rounds ? total.emitted / total.rounds : 0,
      acceptanceRate: total.drafted ? total.accepted / total.drafted : 0,
    };
  }

  return { accepted, children, isVain, lastOrigin, origins, spans, statistics, tried };
})();
