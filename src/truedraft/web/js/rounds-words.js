// @ts-check
/** What the round viewer says, in both languages. */
const RoundsWords = (() => {
  const ORIGINS = /** @type {const} */ (["accepted", "corrected", "bonus", "plain"]);

  const en = {
    origins: { prompt: "prompt", accepted: "accepted draft", corrected: "correction", bonus: "bonus", plain: "plain" },
    title: (/** @type {number} */ index, /** @type {number} */ count) =>
      `Round ${Page.count(index)} of ${Page.count(count)}`,
    story: (
      /** @type {number} */ drafted,
      /** @type {number} */ accepted,
      /** @type {Origin} */ last,
      /** @type {number} */ emitted,
    ) => {
      if (!drafted) return "Nothing was drafted: one pass, one token.";
      const ending = {
        corrected: "and the target put in its own token",
        bonus: "and the bonus token came for free",
        plain: "",
        accepted: "",
        prompt: "",
      }[last];
      return `${drafted} drafted, ${accepted} accepted, ${ending}: ${emitted} ${emitted === 1 ? "token" : "tokens"} from one pass.`;
    },
    cut: "The end of the text cut this round short.",
    law: {
      chosen: "chosen, not drawn",
      sampled: "drawn from q",
      "sampled-without-replacement": "drawn from q without replacement",
      "greedy-draft": "the top of q and one draw",
      coupled: "drawn with the target's own noise",
    },
    lawIs: (/** @type {string} */ law) => `Children were ${law}.`,
    node: (
      /** @type {string} */ piece,
      /** @type {string} */ p,
      /** @type {string} */ q,
      /** @type {boolean} */ stands,
    ) => `${piece}: p ${p}, q ${q}, ${stands ? "accepted" : "not accepted"}`,
    tree: (/** @type {number} */ nodes, /** @type {number} */ depth) =>
      `Draft tree with ${nodes} nodes in ${depth} levels`,
    treeCut: (/** @type {number} */ shown, /** @type {number} */ all) => `${shown} of ${all} nodes are drawn.`,
    root: "last token",
    time: { draft: "draft", target: "target", rule: "rule", rest: "rest" },
    timeOf: { round: "This round", run: "The run" },
    milliseconds: (/** @type {number} */ seconds) => `${Page.number(1000 * seconds, 1)} ms`,
    seconds: (/** @type {number} */ seconds) => `${Page.number(seconds, 2)} s`,
    figures: {
      rounds: "Target passes",
      emitted: "Tokens",
      perPass: "Tokens per pass",
      rate: "Accepted of drafted",
      vain: "Rounds without gain",
      seconds: "Seconds",
      speed: "Tokens per second",
    },
    position: "position",
    tried: "tried",
    hits: "accepted",
    share: "rate",
    earlier: (/** @type {number} */ tokens) => `… ${Page.count(tokens)} tokens earlier …`,
    facts: { model: "Target", drafter: "Drafter", rule: "Rule", parameters: "Parameters", target: "Target" },
    session: (/** @type {number} */ n) => `Text ${n + 1}`,
    play: "Play",
    pause: "Pause",
    nothing: "No round matches this filter.",
    loaded: (/** @type {string} */ name, /** @type {number} */ rounds) => `${name}: ${Page.count(rounds)} rounds.`,
    reading: "Reading …",
    sample: "sample trace",
    problems: {
      empty: () => "This file is empty; nothing was loaded.",
      foreign: (/** @type {Problem} */ p) =>
        `This is not a trace of truedraft (line ${p.line}: ${p.detail}). A trace is made by truedraft generate --trace FILE.`,
      version: (/** @type {Problem} */ p) =>
        `This trace has format ${p.detail}, and these pages read format 1. Use the lab of the truedraft that wrote it.`,
      "long-line": (/** @type {Problem} */ p) =>
        `Line ${p.line} is longer than 4 MB, so this is not a trace, or a damaged one.`,
      "no-rounds": () => "This trace has a header and no round: the run was interrupted before its first.",
      line: (/** @type {Problem} */ p) => `Line ${p.line} is damaged (${p.detail}).`,
      limit: (/** @type {Problem} */ p) =>
        `The file is longer than a page can show: it was read up to line ${Page.count(p.line)}.`,
      unreadable: (/** @type {Problem} */ p) => `The file could not be read: ${p.detail}`,
    },
    kept: (/** @type {number} */ rounds) => ` The ${Page.count(rounds)} rounds before it are shown.`,
  };

  /** @type {typeof en} */
  const zh = {
    origins: { prompt: "提示词", accepted: "接受的草稿", corrected: "修正", bonus: "奖励", plain: "普通" },
    title: (index, count) => `第 ${Page.count(index)} 轮，共 ${Page.count(count)} 轮`,
    story: (drafted, accepted, last, emitted) => {
      if (!drafted) return "没有起草：一次前向，一个词元。";
      const ending = {
        corrected: "目标模型换上自己的词元",
        bonus: "并白得一个奖励词元",
        plain: "",
        accepted: "",
        prompt: "",
      }[last];
      return `起草 ${drafted} 个，接受 ${accepted} 个，${ending}：一次前向产出 ${emitted} 个词元。`;
    },
    cut: "文本在此结束，本轮被截短。",
    law: {
      chosen: "选定的，不是抽取的",
      sampled: "从 q 抽取",
      "sampled-without-replacement": "从 q 不放回抽取",
      "greedy-draft": "q 的前几名加一次抽取",
      coupled: "与目标模型共用噪声抽取",
    },
    lawIs: (law) => `子节点的来历：${law}。`,
    node: (piece, p, q, stands) => `${piece}：p ${p}，q ${q}，${stands ? "接受" : "未接受"}`,
    tree: (nodes, depth) => `草稿树，${nodes} 个节点，${depth} 层`,
    treeCut: (shown, all) => `共 ${all} 个节点，画出 ${shown} 个。`,
    root: "上一词元",
    time: { draft: "起草", target: "目标", rule: "规则", rest: "其他" },
    timeOf: { round: "本轮", run: "全程" },
    milliseconds: (seconds) => `${Page.number(1000 * seconds, 1)} 毫秒`,
    seconds: (seconds) => `${Page.number(seconds, 2)} 秒`,
    figures: {
      rounds: "目标前向次数",
      emitted: "词元数",
      perPass: "每次前向词元数",
      rate: "草稿接受比例",
      vain: "无收获的轮数",
      seconds: "秒",
      speed: "每秒词元数",
    },
    position: "位置",
    tried: "检验",
    hits: "接受",
    share: "接受率",
    earlier: (tokens) => `……前面还有 ${Page.count(tokens)} 个词元……`,
    facts: { model: "目标模型", drafter: "起草者", rule: "规则", parameters: "参数", target: "目标" },
    session: (n) => `文本 ${n + 1}`,
    play: "播放",
    pause: "暂停",
    nothing: "没有符合条件的轮。",
    loaded: (name, rounds) => `${name}：${Page.count(rounds)} 轮。`,
    reading: "正在读取……",
    sample: "示例轨迹",
    problems: {
      empty: () => "文件是空的，没有载入任何内容。",
      foreign: (p) =>
        `这不是 truedraft 的轨迹文件（第 ${p.line} 行：${p.detail}）。轨迹由 truedraft generate --trace FILE 生成。`,
      version: (p) => `轨迹格式为 ${p.detail}，本页读取格式 1。请用写出它的那个版本的 truedraft 打开。`,
      "long-line": (p) => `第 ${p.line} 行超过 4 MB：这不是轨迹文件，或者已损坏。`,
      "no-rounds": () => "轨迹只有文件头，没有任何一轮：运行在第一轮之前就中断了。",
      line: (p) => `第 ${p.line} 行已损坏（${p.detail}）。`,
      limit: (p) => `文件超出页面能展示的长度：读到第 ${Page.count(p.line)} 行为止。`,
      unreadable: (p) => `无法读取文件：${p.detail}`,
    },
    kept: (rounds) => `仍展示它之前的 ${Page.count(rounds)} 轮。`,
  };

  /**
   * A message for a problem; rounds: how many were read all the same.
   * @param {Problem} problem
   * @param {number} rounds
   */
  function problemText(problem, rounds) {
    const words = now();
    return words.problems[problem.kind](problem) + (rounds && problem.kind !== "limit" ? words.kept(rounds) : "");
  }

  const now = () => Page.say({ en, zh });

  return { ORIGINS, now, problemText };
})();
