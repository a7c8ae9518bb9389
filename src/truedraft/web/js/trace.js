// @ts-check
/**
 * Reads trace files: a header, then one JSON object a round (`core.Round.to_json` and the texts of its tokens). It
 * reads line by line and stops at a limit, so that a file of any size and any content leaves the page alive.
 *
 * @typedef {object} TraceRound
 * @property {number} session
 * @property {number} index
 * @property {number} batch
 * @property {string} law
 * @property {number[]} tokens  of the tree; node 0 is the root
 * @property {number[]} parents
 * @property {string[]} pieces  the text of each node's token
 * @property {(number | null)[] | null} p
 * @property {(number | null)[] | null} q
 * @property {number[]} path  accepted nodes
 * @property {number[]} verdict  emitted token ids, before the text was cut
 * @property {string[]} text  of the tokens that the round added
 * @property {number} emitted
 * @property {{draft: number, target: number, rule: number, rest: number}} seconds
 * @property {string | null} [finish_reason]
 * @typedef {{header: Record<string, any>, rounds: TraceRound[], notice: Problem | null}} TraceFile
 * @typedef {"empty" | "foreign" | "version" | "long-line" | "no-rounds" | "line" | "limit" | "unreadable"} ProblemKind
 * @typedef {{kind: ProblemKind, line: number, detail: string}} Problem
 */
const Trace = (() => {
  const LONGEST_LINE = 4 * 2 ** 20; // characters
  const MOST_BYTES = 64 * 2 ** 20;
  const MOST_ROUNDS = 20000;
  const MOST_NODES = 4096;

  /** Carries a `Problem`. */
  class TraceError extends Error {
    /** @param {Problem["kind"]} kind @param {number} line @param {string} [detail] */
    constructor(kind, line, detail = "") {
      super(`${kind} at line ${line}: ${detail}`);
      /** @type {Problem} */
      this.problem = { kind, line, detail };
    }
  }

  /** A reader to push text into; `finish` gives the trace. */
  function reader() {
    /** @type {Record<string, any> | null} */
    let header = null;
    /** @type {TraceRound[]} */
    const rounds = [];
    /** @type {Problem | null} */
    let notice = null;
    let rest = "",
      line = 0;

    /** @param {string} text */
    function take(text) {
      line++;
      if (!text.trim()) return;
      if (!header) header = headerOf(text, line);
      else rounds.push(roundOf(text, line));
      if (rounds.length >= MOST_ROUNDS) notice = { kind: "limit", line, detail: "" };
    }

    /** @param {string} text */
    function takeOrStop(text) {
      try {
        take(text);
      } catch (error) {
        if (!(error instanceof TraceError) || !rounds.length) throw error;
        notice = error.problem; // what was read before stays useful
      }
    }

    return {
      /** False when no more is wanted. @param {string} text */
      push(text) {
        const lines = (rest + text).split("\n");
        rest = lines.pop() ?? "";
        for (const each of lines) if (!notice) takeOrStop(each);
        if (!notice && rest.length > LONGEST_LINE) {
          if (!rounds.length) throw new TraceError("long-line", line + 1);
          notice = { kind: "long-line", line: line + 1, detail: "" };
        }
        return !notice;
      },
      /** @returns {TraceFile} */
      finish() {
        if (!notice && rest) takeOrStop(rest);
        if (!header) throw new TraceError("empty", 1);
        if (!rounds.length) throw new TraceError("no-rounds", line);
        return { header, rounds, notice };
      },
      limit() {
        notice ??= { kind: "limit", line, detail: "" };
      },
    };
  }

  /** @param {string} text @returns {TraceFile} */
  function parse(text) {
    const into = reader();
    into.push(text);
    return into.finish();
  }

  /** Throws a `TraceError`. @param {Blob} file @returns {Promise<TraceFile>} */
  async function read(file) {
    const into = reader();
    const source = file.stream().getReader();
    const decoder = new TextDecoder();
    let bytes = 0;
    try {
      for (;;) {
        const { done, value } = await source.read();
        if (done) break;
        bytes += value.length;
        if (!into.push(decoder.decode(value, { stream: true }))) break;
        if (bytes > MOST_BYTES) {
          into.limit();
          break;
        }
      }
    } catch (error) {
      if (error instanceof TraceError) throw error;
      throw new TraceError("unreadable", 0, error instanceof Error ? error.message : String(error));
    } finally {
      source.cancel().catch(() => {});
    }
    return into.finish();
  }

  /** @param {string} text @param {number} line */
  function objectOf(text, line) {
    let value;
    try {
      value = JSON.parse(text);
    } catch {
      throw new TraceError(line === 1 ? "foreign" : "line", line, "not JSON");
    }
    if (value === null || typeof value !== "object" || Array.isArray(value))
      throw new TraceError(line === 1 ? "foreign" : "line", line, "not an object");
    return value;
  }

  /** @param {string} text @param {number} line */
  function headerOf(text, line) {
    const header = objectOf(text, line);
    if (!("trace" in header)) throw new TraceError("foreign", line, 'no "trace"');
    if (header.trace !== 1) throw new TraceError("version", line, String(header.trace));
    return header;
  }

  /** @param {string} text @param {number} line @returns {TraceRound} */
  function roundOf(text, line) {
    const round = { session: 0, index: 0, batch: 1, p: null, q: null, law: "", ...objectOf(text, line) };
    const check = (/** @type {boolean} */ good, /** @type {string} */ what) => {
      if (!good) throw new TraceError("line", line, what);
    };
    const { tokens, parents, path, verdict, seconds } = round;
    for (const name of ["session", "index", "batch", "emitted"]) check(Number.isInteger(round[name]), name);
    for (const name of ["tokens", "parents", "path", "verdict"]) check(isList(round[name], Number.isInteger), name);
    check(
      tokens.length > 0 && tokens.length <= MOST_NODES && parents.length === tokens.length && parents[0] === -1,
      "parents",
    );
    for (let node = 1; node < parents.length; node++) check(parents[node] >= 0 && parents[node] < node, "parents");
    let last = 0;
    for (const node of path) {
      check(node > 0 && node < tokens.length && parents[node] === last, "path");
      last = node;
    }
    check(verdict.length === path.length + 1 && round.emitted <= verdict.length, "verdict");
    for (const name of ["p", "q"])
      check(round[name] === null || (round[name].length === tokens.length && isList(round[name], isShare)), name);
    round.pieces ??= tokens.map(String);
    round.text ??= verdict.slice(0, Math.max(0, round.emitted)).map(String);
    check(isList(round.pieces, isText) && round.pieces.length === tokens.length, "pieces");
    check(isList(round.text, isText) && round.text.length >= Math.max(0, round.emitted), "text");
    check(seconds && ["draft", "target", "rule", "rest"].every((part) => seconds[part] >= 0), "seconds");
    return round;
  }

  /** @param {unknown} value @param {(item: any) => boolean} fits */
  const isList = (value, fits) => Array.isArray(value) && value.every(fits);
  /** @param {unknown} item */
  const isText = (item) => typeof item === "string";
  /** @param {unknown} item */
  const isShare = (item) => item === null || (typeof item === "number" && item >= 0);

  return { MOST_ROUNDS, TraceError, parse, read };
})();
