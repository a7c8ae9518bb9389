// @ts-check
/**
 * Line charts on uPlot, in the page's colours, redrawn when these change.
 *
 * @typedef {object} Line
 * @property {string} colour  name of a colour of the style sheet
 * @property {number[]} [dash]
 * @property {number} [width]
 * @typedef {object} ChartOptions
 * @property {number} height
 * @property {Line[]} lines
 * @property {[number, number]} [band]  indices of the upper and the lower of two lines with a shade between them
 * @property {boolean} [logarithmic]  of the horizontal axis
 * @property {() => {x: string, lines: string[]}} labels
 * @property {() => {x: [number, number], y: [number, number]}} ranges
 * @property {(plot: uPlot) => void} [under]  draws before the lines
 * @property {(plot: uPlot) => void} [over]  draws after the lines
 */
const Charts = (() => {
  /** @param {HTMLElement} host @param {ChartOptions} options */
  function lines(host, options) {
    /** @type {uPlot.AlignedData} */
    let data = [[], ...options.lines.map(() => [])];
    /** @type {uPlot | null} */
    let plot = null;

    function draw() {
      plot?.destroy();
      plot = new uPlot(settings(options, host.clientWidth), data, host);
    }

    Page.onLook(draw);
    new ResizeObserver(() => {
      if (plot && host.clientWidth && host.clientWidth !== plot.width)
        plot.setSize({ width: host.clientWidth, height: options.height });
    }).observe(host);

    return {
      /** @param {uPlot.AlignedData} next */
      set(next) {
        data = next;
        plot?.setData(data);
      },
    };
  }

  /** @param {ChartOptions} options @param {number} width @returns {uPlot.Options} */
  function settings(options, width) {
    const labels = options.labels();
    return {
      width: Math.max(width, 200),
      height: options.height,
      legend: { live: true, markers: { width: 2 } },
      cursor: { y: false, drag: { x: false, y: false }, points: { size: 7 } },
      scales: {
        x: { time: false, distr: options.logarithmic ? 3 : 1, range: () => options.ranges().x },
        y: { range: () => options.ranges().y },
      },
      axes: [
        axis({ values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : shortNumber(tick))) }),
        axis({ size: 44 }),
      ],
      series: [
        { label: labels.x, value: (_, value) => (value === null || value === undefined ? "–" : Page.count(value)) },
        ...options.lines.map((line, i) => series(line, labels.lines[i])),
      ],
      bands: options.band ? [{ series: [options.band[0] + 1, options.band[1] + 1], fill: Page.colour("band") }] : [],
      hooks: { drawClear: options.under ? [options.under] : [], draw: options.over ? [options.over] : [] },
    };
  }

  /** @param {Line} line @param {string} label @returns {uPlot.Series} */
  function series({ colour, dash, width = 2 }, label) {
    return {
      label,
      stroke: Page.colour(colour),
      width,
      dash,
      points: { show: false },
      value: (_, value) => (value === null || value === undefined ? "–" : Page.number(value, 3)),
    };
  }

  /** @param {uPlot.Axis} extra @returns {uPlot.Axis} */
  function axis(extra) {
    const line = { stroke: Page.colour("line"), width: 1 };
    return {
      stroke: Page.colour("muted"),
      grid: line,
      ticks: { ...line, size: 4 },
      font: "12px system-ui, sans-serif",
      ...extra,
    };
  }

  /** 1k, 10k, 100k. @param {number} value */
  function shortNumber(value) {
    return value >= 1000 ? `${value / 1000}k` : String(value);
  }

  return { lines };
})();
