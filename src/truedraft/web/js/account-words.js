// @ts-check
/**
 * What the account page says, in both languages.
 *
 * @typedef {object} Facts
 * @property {number} alpha
 * @property {number} c
 * @property {number} k
 * @property {Load} load
 * @property {number} tokens  expected of a round
 * @property {number} gain
 * @property {{k: number, gain: number}} best
 */
const AccountWords = (() => {
  const f = Page.number;

  const en = {
    verdicts: {
      "worth-it": (/** @type {Facts} */ { k, gain, best }) => [
        `Worth it: ${f(gain)} times as fast.`,
        best.k === k ? "This is the best length." : `With k = ${best.k} it would be ${f(best.gain)}.`,
      ],
      "other-length": (/** @type {Facts} */ { k, gain, best }) => [
        `Not at this length: ${f(gain)} with k = ${k}.`,
        `The pair is good enough, the draft has the wrong length: k = ${best.k} gives ${f(best.gain)}.`,
      ],
      "past-the-ridge": (/** @type {Facts} */ { k, gain, load }) => [
        `The batch is past the ridge: ${f(gain)}.`,
        `A pass holds ${load.batch} × ${k + 1} = ${load.batch * (k + 1)} tokens and stops being flat at ${load.ridge}. Switch speculation off above ${Math.max(1, Math.floor(load.ridge / 2))} sequences, where not even k = 1 fits.`,
      ],
      "draft-too-expensive": (/** @type {Facts} */ { c, k, tokens, gain }) => [
        `The draft is too expensive: ${f(gain)}.`,
        `A draft step costs ${f(c)} of a target step. At this acceptance k = ${k} breaks even at c = ${f((tokens - 1) / k)}: take a smaller drafter, or one without a model (n-gram, suffix).`,
      ],
      "acceptance-too-low": (/** @type {Facts} */ { k, tokens, gain }) => [
        `Too few drafts stand: ${f(gain)}.`,
        `Of ${k} drafted tokens ${f(tokens - 1)} stand on average. Take a drafter that is closer to the target: same family, trained heads, or the same temperature.`,
      ],
    },
    figures: { gain: "Speedup", tokens: "Tokens per pass, E", cost: "Cost of a round", best: "Best k" },
    none: "none",
    unbounded: "none",
    curve: { x: "k", lines: ["speedup", "without the ridge"] },
    best: (/** @type {number} */ k, /** @type {number} */ gain) => `best: k = ${k}, ${f(gain)}×`,
    slower: "slower than plain decoding",
    map: { x: "acceptance rate α", y: "cost c" },
    mapNote: (
      /** @type {number} */ alpha,
      /** @type {number} */ c,
      /** @type {number} */ k,
      /** @type {number} */ gain,
    ) =>
      k
        ? `α = ${f(alpha)}, c = ${f(c)}: ${f(gain)}× with k = ${k}.`
        : `α = ${f(alpha)}, c = ${f(c)}: nothing pays, plain decoding is best.`,
    speedup: "speedup",
    rates: (/** @type {number[]} */ rates) =>
      `Measured rates by position are in use: ${rates.map((rate) => f(rate)).join(", ")}. Moving α or the decay puts them aside.`,
    input: {
      used: (/** @type {string} */ list) => `Read: ${list}.`,
      derived: (/** @type {[string, string][]} */ from) =>
        ` Worked out: ${from.map(([name, source]) => `${name} from ${source}`).join(", ")}.`,
      missing: (/** @type {string} */ list) => ` Not found and left as it was: ${list}.`,
      nothing: "No number found. Expected three numbers, alpha=… c=… k=…, or JSON with alpha, c and k.",
      range: (/** @type {string} */ name, /** @type {unknown} */ value, /** @type {string} */ range) =>
        `${name} = ${String(value)} is out of range: expected ${range}.`,
      json: (/** @type {string} */ reason) => `This is not valid JSON: ${reason}`,
      large: (/** @type {string} */ size) => `The file has ${size} MB; a bench or profile JSON has less than 5.`,
    },
  };

  /** @type {typeof en} */
  const zh = {
    verdicts: {
      "worth-it": ({ k, gain, best }) => [
        `划算：速度是原来的 ${f(gain)} 倍。`,
        best.k === k ? "这就是最佳长度。" : `若 k = ${best.k}，可达 ${f(best.gain)} 倍。`,
      ],
      "other-length": ({ k, gain, best }) => [
        `长度不对：k = ${k} 时只有 ${f(gain)} 倍。`,
        `这对模型足够好，只是草稿长度不合适：k = ${best.k} 可达 ${f(best.gain)} 倍。`,
      ],
      "past-the-ridge": ({ k, gain, load }) => [
        `批量越过了屋脊：${f(gain)} 倍。`,
        `一次前向有 ${load.batch} × ${k + 1} = ${load.batch * (k + 1)} 个词元，到 ${load.ridge} 就不再平坦。超过 ${Math.max(1, Math.floor(load.ridge / 2))} 个序列时连 k = 1 都放不下，应关闭投机解码。`,
      ],
      "draft-too-expensive": ({ c, k, tokens, gain }) => [
        `起草太贵：${f(gain)} 倍。`,
        `起草一步要花目标模型一步的 ${f(c)}。以这个接受率，k = ${k} 要 c = ${f((tokens - 1) / k)} 才能持平：换更小的草稿模型，或不用模型的方法（n-gram、后缀匹配）。`,
      ],
      "acceptance-too-low": ({ k, tokens, gain }) => [
        `保留的草稿太少：${f(gain)} 倍。`,
        `起草 ${k} 个词元，平均只留下 ${f(tokens - 1)} 个。换一个更接近目标的起草者：同一家族的模型、训练过的头，或相同的温度。`,
      ],
    },
    figures: { gain: "加速比", tokens: "每次前向词元数 E", cost: "一轮的成本", best: "最佳 k" },
    none: "无",
    unbounded: "无",
    curve: { x: "k", lines: ["加速比", "不计屋脊"] },
    best: (k, gain) => `最佳：k = ${k}，${f(gain)} 倍`,
    slower: "比普通解码还慢",
    map: { x: "接受率 α", y: "成本 c" },
    mapNote: (alpha, c, k, gain) =>
      k
        ? `α = ${f(alpha)}，c = ${f(c)}：k = ${k} 时 ${f(gain)} 倍。`
        : `α = ${f(alpha)}，c = ${f(c)}：怎样都不划算，普通解码最好。`,
    speedup: "加速比",
    rates: (rates) => `正在使用逐位置实测接受率：${rates.map((rate) => f(rate)).join("，")}。移动 α 或衰减即弃用。`,
    input: {
      used: (list) => `已读取：${list}。`,
      derived: (from) => `推算所得：${from.map(([name, source]) => `${name} 来自 ${source}`).join("，")}。`,
      missing: (list) => `未找到、保持不变：${list}。`,
      nothing: "没有找到数值。需要三个数，或 alpha=… c=… k=…，或含有 alpha、c、k 的 JSON。",
      range: (name, value, range) => `${name} = ${String(value)} 超出范围，应为 ${range}。`,
      json: (reason) => `不是合法的 JSON：${reason}`,
      large: (size) => `文件有 ${size} MB；基准测试或性能分析的 JSON 不超过 5 MB。`,
    },
  };

  return { now: () => Page.say({ en, zh }) };
})();
