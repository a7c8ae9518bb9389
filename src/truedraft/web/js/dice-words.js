// @ts-check
/** What the dice page says, in both languages. */
const DiceWords = (() => {
  const f = (/** @type {number | null} */ value) => Page.number(value ?? 0);

  const en = {
    presets: {
      story:
        "Many continuations are fair, the small model guesses differently: α is about 0.6 and rejections are frequent.",
      code: "The next token is nearly forced and the small model sees it too: α is about 0.9 and long blocks stand.",
      copied:
        "No model drafts at all: the tokens are looked up earlier in the text, so q puts everything on one token, and p(x) is the chance that it stands.",
      greedy:
        "The target always takes its first choice: p is 1 on one token. A draft stands exactly when it guessed that token.",
      edited: "Your own numbers.",
    },
    rules: {
      token: "Each position is judged alone: accept with probability min(1, p/q). The first rejection ends the block.",
      block:
        "All positions are judged together, the longest block first: h is the chance that it may end there, and the first yes wins. Same drafts, never worse than token by token.",
      "target-only":
        "The draft does not throw dice, it takes q's favourite. Then there is no q to divide by: the target simply draws from p, and the draft stands if it is what was drawn.",
      careless:
        "Accepts like token by token, but draws the correction from p instead of the residual. A mistake found in real programs: the text looks fine.",
    },
    round: (/** @type {number} */ n) => `Round ${Page.count(n)}`,
    position: (/** @type {number} */ n) => `Position ${n}`,
    bonusPosition: (/** @type {number} */ n) => `Position ${n}, the bonus`,
    bonus: "bonus",
    waiting: "not thrown yet",
    drafted: "drafted",
    passed: "stands",
    ends: "ends here",
    mayNot: "not here",
    rejected: "rejected",
    corrected: "corrected",
    cut: "cut off",
    free: "free token",
    drew: (/** @type {string} */ token) => `target drew “${token}”`,
    play: "Play",
    pause: "Pause",
    told: {
      start: "Press Step: the small model drafts its tokens first.",
      drafted: (/** @type {number} */ k) =>
        `The small model has drafted ${k} token${k > 1 ? "s" : ""}. The large model scores all of them in one pass; now the rule throws for each.`,
      passed: (/** @type {number} */ n, /** @type {Coin} */ c) =>
        `Position ${n}: u = ${f(c.u)} is below ${f(c.probability)}. The token stands.`,
      rejected: (/** @type {number} */ n, /** @type {Coin} */ c) =>
        `Position ${n}: u = ${f(c.u)} is not below ${f(c.probability)}. Rejected; everything after it is cut off.`,
      ends: (/** @type {number} */ n, /** @type {Coin} */ c) =>
        `Position ${n}: u = ${f(c.u)} is below h = ${f(c.probability)}. The block ends here: all up to here stand.`,
      mayNot: (/** @type {number} */ n, /** @type {Coin} */ c) =>
        `Position ${n}: u = ${f(c.u)} is not below h = ${f(c.probability)}. The block may not end here; the next shorter one is asked.`,
      drewIt: (/** @type {number} */ n, /** @type {string} */ token) =>
        `Position ${n}: the target draws “${token}”, just what was drafted. It stands.`,
      drewOther: (/** @type {number} */ n, /** @type {string} */ token) =>
        `Position ${n}: the target draws “${token}”, which was not drafted. Everything after it is cut off.`,
      corrected: (/** @type {number} */ n, /** @type {string} */ token, /** @type {RuleName} */ rule) =>
        `Position ${n}: “${token}” ${{ token: "is drawn from the residual", block: "is drawn from the residual", "target-only": "is what the target drew", careless: "is drawn from p (this is the mistake)" }[rule]}. The round yields ${n} token${n > 1 ? "s" : ""}.`,
      bonus: (/** @type {number} */ n, /** @type {string} */ token) =>
        `All drafts stand. The pass has also scored position ${n}, so “${token}” comes for free: ${n} tokens from one pass.`,
      ran: (/** @type {number} */ n) => `${Page.count(n)} rounds done.`,
    },
    columns: {
      token: "token",
      bars: "p above, q below",
      p: "p",
      q: "q",
      shared: "min",
      rest: "residual",
      seen: "emitted",
      share: "share",
      expected: "p says",
    },
    inPercent: (/** @type {string} */ which, /** @type {string} */ token) => `${which} of ${token} in per cent`,
    pairNote: (/** @type {number} */ alpha) =>
      `α = Σ min(p, q) = ${Page.number(alpha, 3)} at this position. The residual column is what a correction is drawn from, scaled to 100 %.`,
    pairNoteBonus: "At the bonus position nothing is drafted: its token is drawn from p.",
    pairNoteChosen: (/** @type {string} */ token, /** @type {number} */ alpha) =>
      `The draft takes “${token}”, its favourite, and it stands with probability p = ${Page.number(alpha, 3)}. The residual column is p without it, scaled to 100 %.`,
    fit: {
      few: ["Too few rounds to say.", "Run 1,000 rounds."],
      good: ["The output agrees with the target's distribution.", ""],
      single: [
        "Every emitted token is the only one the target allows.",
        "With temperature 0 there is nothing else to test, right rule or wrong.",
      ],
      bad: ["This is not the target's distribution.", ""],
      read: (/** @type {number} */ value, /** @type {number} */ df, /** @type {number} */ tail) =>
        `χ² = ${Page.number(value, 1)} with ${df} degrees of freedom, P = ${tailText(tail)}.`,
    },
    yield: { mean: "Mean, measured", theory: "Theory, E", rounds: "Rounds", emitted: "Tokens emitted" },
    chart: { x: "rounds", lines: ["mean", "theory E", "band from", "to"] },
  };

  /** @type {typeof en} */
  const zh = {
    presets: {
      story: "合理的续写很多，小模型的猜法不同：α 约 0.6，拒绝很常见。",
      code: "下一个词元几乎别无选择，小模型也看得出来：α 约 0.9，整段常能保留。",
      copied: "根本没有模型起草：词元从前文中查得，q 把全部概率押在一个词元上，它留下的机会就是 p(x)。",
      greedy: "目标模型永远取第一选择：p 在一个词元上为 1。草稿猜中它才能保留。",
      edited: "你自己的数值。",
    },
    rules: {
      token: "逐个位置单独判断：以 min(1, p/q) 的概率接受。第一次拒绝就结束本块。",
      block: "所有位置一起判断，从最长的块问起：h 是它可以在此结束的概率，第一个“可以”胜出。草稿相同，绝不比逐词元差。",
      "target-only":
        "草稿不掷骰子，直接取 q 最看好的词元。于是没有 q 可除：目标模型径直从 p 抽取，抽到的恰是草稿，草稿就保留。",
      careless: "接受的方式与逐词元相同，但修正词元从 p 而不是残差中抽取。真实程序里出现过的错误：文本看上去一切正常。",
    },
    round: (n) => `第 ${Page.count(n)} 轮`,
    position: (n) => `位置 ${n}`,
    bonusPosition: (n) => `位置 ${n}（奖励）`,
    bonus: "奖励",
    waiting: "尚未掷出",
    drafted: "已起草",
    passed: "保留",
    ends: "到此为止",
    mayNot: "此处不行",
    rejected: "拒绝",
    corrected: "修正",
    cut: "截断",
    free: "白得一个",
    drew: (token) => `目标抽到“${token}”`,
    play: "播放",
    pause: "暂停",
    told: {
      start: "按“单步”：小模型先起草。",
      drafted: (k) => `小模型起草了 ${k} 个词元。大模型一次前向就给全部词元打分，接下来规则逐个掷骰子。`,
      passed: (n, c) => `位置 ${n}：u = ${f(c.u)}，小于 ${f(c.probability)}，词元保留。`,
      rejected: (n, c) => `位置 ${n}：u = ${f(c.u)}，不小于 ${f(c.probability)}，拒绝，其后全部截断。`,
      ends: (n, c) => `位置 ${n}：u = ${f(c.u)}，小于 h = ${f(c.probability)}，块在此结束，到此为止全部保留。`,
      mayNot: (n, c) => `位置 ${n}：u = ${f(c.u)}，不小于 h = ${f(c.probability)}，块不可在此结束，再问短一个的。`,
      drewIt: (n, token) => `位置 ${n}：目标模型抽到“${token}”，正是草稿，保留。`,
      drewOther: (n, token) => `位置 ${n}：目标模型抽到“${token}”，草稿没押中，其后全部截断。`,
      corrected: (n, token, rule) =>
        `位置 ${n}：${{ token: "从残差中抽到", block: "从残差中抽到", "target-only": "目标模型抽到的是", careless: "从 p 中抽到（错就错在这里）" }[rule]}“${token}”。本轮产出 ${n} 个词元。`,
      bonus: (n, token) =>
        `草稿全部保留。这次前向也给位置 ${n} 打了分，所以白得一个“${token}”：一次前向，${n} 个词元。`,
      ran: (n) => `已完成 ${Page.count(n)} 轮。`,
    },
    columns: {
      token: "词元",
      bars: "上为 p，下为 q",
      p: "p",
      q: "q",
      shared: "min",
      rest: "残差",
      seen: "实际输出",
      share: "频率",
      expected: "应为 p",
    },
    inPercent: (which, token) => `${token} 的 ${which}（百分数）`,
    pairNote: (alpha) =>
      `此位置 α = Σ min(p, q) = ${Page.number(alpha, 3)}。残差一列是修正词元的抽取分布，已归一到 100%。`,
    pairNoteBonus: "奖励位置没有草稿：它的词元直接从 p 抽取。",
    pairNoteChosen: (token, alpha) =>
      `草稿取它最看好的“${token}”，保留的概率是 p = ${Page.number(alpha, 3)}。残差一列是去掉它之后的 p，已归一到 100%。`,
    fit: {
      few: ["轮数太少，还不能下结论。", "跑 1,000 轮试试。"],
      good: ["输出与目标模型的分布一致。", ""],
      single: ["每个输出词元都是目标模型唯一允许的那个。", "温度为 0 时没有别的可检验，规则对错都一样。"],
      bad: ["这不是目标模型的分布。", ""],
      read: (value, df, tail) => `χ² = ${Page.number(value, 1)}，自由度 ${df}，P = ${tailText(tail)}。`,
    },
    yield: { mean: "实测平均", theory: "理论值 E", rounds: "轮数", emitted: "输出词元数" },
    chart: { x: "轮数", lines: ["平均", "理论值 E", "区间自", "至"] },
  };

  /** @param {number} tail */
  function tailText(tail) {
    if (tail >= 0.001) return Page.number(tail, 3);
    if (tail < 1e-300) return "< 10⁻³⁰⁰";
    const [factor, power] = tail.toExponential(0).split("e-");
    return `${factor} × 10⁻${[...power].map((digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[Number(digit)]).join("")}`;
  }

  return { now: () => Page.say({ en, zh }), tailText };
})();
