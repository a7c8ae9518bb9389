// @ts-check
/** The map of the speedup over acceptance rate and cost, as SVG. */
const AccountMap = (() => {
  const COLUMNS = 21,
    ROWS = 13; // alpha 0 .. 1 in steps of 0.05 (to the right), c 0 .. 0.6 (upwards)
  const CELL = { width: 40, height: 26 };
  const LEFT = 92,
    BELOW = 70,
    TOP = 6;

  /** @param {number} column */
  const alphaAt = (column) => column / 20;
  /** @param {number} row  from the bottom */
  const costAt = (row) => row / 20;

  /** Blue above 1, red below; stronger the farther, saturating at 3 and at 1/2. @param {number} gain */
  function colour(gain) {
    const strength = Math.min(1, gain >= 1 ? Math.log(gain) / Math.log(3) : Math.log(1 / gain) / Math.log(2));
    return `color-mix(in oklab, var(--${gain >= 1 ? "p" : "excess"}) ${(100 * strength).toFixed(1)}%, var(--sunken))`;
  }

  /**
   * @param {(alpha: number, c: number) => number} gain
   * @param {{alpha: number, c: number}} here
   * @param {(alpha: number, c: number) => void} go
   */
  function draw(gain, here, go) {
    const words = AccountWords.now().map;
    const gains = Array.from({ length: ROWS }, (_, row) =>
      Array.from({ length: COLUMNS }, (_, column) => gain(alphaAt(column), costAt(row))),
    );
    const x = (/** @type {number} */ column) => LEFT + column * CELL.width;
    const y = (/** @type {number} */ row) => TOP + (ROWS - 1 - row) * CELL.height;
    const cells = gains.flatMap((line, row) =>
      line.map((value, column) => {
        const cell = Page.make(
          "rect",
          {
            x: x(column),
            y: y(row),
            width: CELL.width,
            height: CELL.height,
            "data-alpha": alphaAt(column),
            "data-c": costAt(row),
            click: () => go(alphaAt(column), costAt(row)),
          },
          Page.make(
            "title",
            {},
            `α ${Page.number(alphaAt(column))}  c ${Page.number(costAt(row))}  ${Page.number(value)}×`,
          ),
        );
        cell.style.fill = colour(value);
        return cell;
      }),
    );
    const width = LEFT + COLUMNS * CELL.width + 8,
      height = TOP + ROWS * CELL.height + BELOW;
    const column = Math.min(COLUMNS - 1, Math.max(0, here.alpha * 20)),
      row = Math.min(ROWS - 1, Math.max(0, here.c * 20));
    return Page.make(
      "svg",
      { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" },
      ...cells,
      Page.make("path", { class: "border", d: border(gains, x, y) }),
      Page.make("rect", {
        class: "here",
        x: x(column) + 1,
        y: y(row) + 1,
        width: CELL.width - 2,
        height: CELL.height - 2,
        rx: 4,
      }),
      ...axis(x, y, words),
    );
  }

  /**
   * The edges between cells that win and cells that do not.
   * @param {number[][]} gains
   * @param {(column: number) => number} x
   * @param {(row: number) => number} y
   */
  function border(gains, x, y) {
    let path = "";
    for (let row = 0; row < ROWS; row++)
      for (let column = 0; column < COLUMNS; column++) {
        const wins = gains[row][column] > 1;
        if (column + 1 < COLUMNS && wins !== gains[row][column + 1] > 1)
          path += `M${x(column + 1)} ${y(row)}v${CELL.height}`;
        if (row + 1 < ROWS && wins !== gains[row + 1][column] > 1) path += `M${x(column)} ${y(row)}h${CELL.width}`;
      }
    return path;
  }

  /** @param {(column: number) => number} x @param {(row: number) => number} y @param {{x: string, y: string}} words */
  function axis(x, y, words) {
    const bottom = y(0) + CELL.height;
    const below = [0, 4, 8, 12, 16, 20].map((column) =>
      Page.make(
        "text",
        { x: x(column) + CELL.width / 2, y: bottom + 24, "text-anchor": "middle" },
        Page.number(alphaAt(column), 1),
      ),
    );
    const beside = [0, 4, 8, 12].map((row) =>
      Page.make("text", { x: LEFT - 8, y: y(row) + 18, "text-anchor": "end" }, Page.number(costAt(row), 1)),
    );
    const middle = (TOP + bottom) / 2;
    return [
      ...below,
      ...beside,
      Page.make("text", { x: x(COLUMNS / 2), y: bottom + 58, "text-anchor": "middle" }, words.x),
      Page.make("text", { x: 22, y: middle, "text-anchor": "middle", transform: `rotate(-90 22 ${middle})` }, words.y),
    ];
  }

  /** Where an arrow key leads from here, on the grid. @param {string} key @param {{alpha: number, c: number}} here */
  function move(key, { alpha, c }) {
    const [right, up] = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[key] ?? [0, 0];
    if (!right && !up) return null;
    const column = Math.min(COLUMNS - 1, Math.max(0, Math.round(alpha * 20) + right));
    const row = Math.min(ROWS - 1, Math.max(0, Math.round(c * 20) + up));
    return { alpha: alphaAt(column), c: costAt(row) };
  }

  return { draw, move };
})();
