// @ts-check
/** Draws a draft tree as SVG: levels from left to right, the accepted path marked, what was refused faded. */
const RoundsTree = (() => {
  const COLUMN = 138,
    ROW = 54,
    BOX = { width: 112, height: 42 };
  const MARGIN = 8;
  const MOST_DRAWN = 400;

  /** @typedef {{x: number, y: number}} Place */

  /**
   * Places of the nodes, leaves one below the other, a parent beside the middle of its children. The token that the
   * rule itself emitted is one node more, at the end of the accepted path.
   * @param {TraceRound} round @param {number} drawn
   */
  function layout(round, drawn) {
    const parents = [...round.parents.slice(0, drawn), round.path[round.path.length - 1] ?? 0];
    /** @type {number[][]} */
    const children = parents.map(() => []);
    for (let node = 1; node < parents.length; node++) if (parents[node] < drawn) children[parents[node]].push(node);
    /** @type {Place[]} */
    const places = parents.map(() => ({ x: 0, y: 0 }));
    let bottom = 0;
    // Children come after their parents, so depths go forwards and heights follow the walk back from the leaves.
    for (let node = 1; node < parents.length; node++) places[node].x = places[Math.min(parents[node], drawn - 1)].x + 1;
    for (const { node, leaving } of walk(children)) {
      if (!leaving) continue;
      const below = children[node];
      places[node].y = below.length ? (places[below[0]].y + places[below[below.length - 1]].y) / 2 : bottom++;
    }
    return { parents, places, width: Math.max(...places.map(({ x }) => x)) + 1, height: bottom };
  }

  /** Every node twice, on the way down and on the way up. @param {number[][]} children */
  function walk(children) {
    const steps = [],
      stack = [{ node: 0, leaving: false }];
    for (let step = stack.pop(); step; step = stack.pop()) {
      steps.push(step);
      if (step.leaving) continue;
      stack.push({ node: step.node, leaving: true });
      for (const child of [...children[step.node]].reverse()) stack.push({ node: child, leaving: false });
    }
    return steps;
  }

  /** @param {TraceRound} round */
  function draw(round) {
    const words = RoundsWords.now();
    const drawn = Math.min(round.tokens.length, MOST_DRAWN);
    const { parents, places, width, height } = layout(round, drawn);
    const stands = new Set([0, ...round.path]);
    const last = parents.length - 1,
      own = TraceFacts.lastOrigin(round);
    const edges = [],
      boxes = [];
    for (let node = 0; node <= last; node++) {
      const kind = node === last ? own : stands.has(node) ? "accepted" : "refused";
      if (node) edges.push(edge(places[Math.min(parents[node], drawn - 1)], places[node], kind));
      boxes.push(
        node === last ? ownBox(round, places[node], own) : box(round, node, places[node], node ? kind : "root"),
      );
    }
    const size = {
      width: width * COLUMN - (COLUMN - BOX.width) + 2 * MARGIN,
      height: height * ROW - (ROW - BOX.height) + 2 * MARGIN,
    };
    return Page.make(
      "svg",
      {
        viewBox: `0 0 ${size.width} ${size.height}`,
        width: size.width,
        height: size.height,
        role: "img",
        "aria-label": words.tree(round.tokens.length - 1, width - 1),
      },
      ...edges,
      ...boxes,
    );
  }

  /** @param {Place} place */
  const corner = ({ x, y }) => ({ x: MARGIN + x * COLUMN, y: MARGIN + y * ROW });

  /** @param {Place} from @param {Place} to @param {string} kind */
  function edge(from, to, kind) {
    const a = corner(from);
    const b = corner(to);
    const [x, y] = [a.x + BOX.width, a.y + BOX.height / 2];
    const [middle, end] = [(x + b.x) / 2, b.y + BOX.height / 2];
    return Page.make("path", {
      class: `edge is-${kind}`,
      d: `M${x} ${y}C${middle} ${y} ${middle} ${end} ${b.x} ${end}`,
    });
  }

  /** @param {TraceRound} round @param {number} node @param {Place} place @param {string} kind */
  function box(round, node, place, kind) {
    const words = RoundsWords.now();
    const p = share(round.p, node),
      q = share(round.q, node);
    const piece = visible(round.pieces[node]);
    const numbers = node ? `p ${p}  q ${q}` : words.root;
    return frame(place, kind, piece, numbers, node ? words.node(piece, p, q, kind === "accepted") : piece);
  }

  /** The correction, bonus or plain token. @param {TraceRound} round @param {Place} place @param {Origin} kind */
  function ownBox(round, place, kind) {
    const text = round.text[round.path.length];
    const words = RoundsWords.now();
    const piece = text === undefined ? "✂" : visible(text);
    return frame(place, kind, piece, words.origins[kind], `${words.origins[kind]}: ${piece}`);
  }

  /** @param {Place} place @param {string} kind @param {string} piece @param {string} below @param {string} told */
  function frame(place, kind, piece, below, told) {
    const { x, y } = corner(place);
    const short = [...piece].length > 12 ? `${[...piece].slice(0, 11).join("")}…` : piece;
    return Page.make(
      "g",
      { class: `node is-${kind}` },
      Page.make("title", {}, told),
      Page.make("rect", { x, y, width: BOX.width, height: BOX.height, rx: 7 }),
      Page.make("text", { x: x + 9, y: y + 18, class: "piece" }, short),
      Page.make("text", { x: x + 9, y: y + 34, class: "share" }, below),
    );
  }

  /** @param {(number | null)[] | null} row @param {number} node */
  function share(row, node) {
    const value = row?.[node] ?? null;
    return value === null ? "–" : value >= 0.01 || value === 0 ? Page.number(value) : "<0.01";
  }

  /** Spaces and line ends that one can see. @param {string} piece */
  function visible(piece) {
    return piece.replaceAll(" ", "·").replaceAll("\n", "⏎").replaceAll("\t", "⇥") || "∅";
  }

  return { MOST_DRAWN, draw, visible };
})();
