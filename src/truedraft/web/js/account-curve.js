// @ts-check
/** What is drawn on the speedup curve besides its lines: the zone of loss, the best length, the chosen one. */
const AccountCurve = (() => {
  /** The zone below 1. @param {uPlot} plot */
  function shade(plot) {
    const { ctx, bbox } = plot;
    const one = plot.valToPos(1, "y", true);
    if (one > bbox.top + bbox.height) return;
    const top = Math.max(one, bbox.top);
    ctx.save();
    ctx.fillStyle = Page.colour("loss");
    ctx.fillRect(bbox.left, top, bbox.width, bbox.top + bbox.height - top);
    ctx.fillStyle = Page.colour("bad");
    label(
      plot,
      AccountWords.now().slower,
      bbox.left + bbox.width - 8 * devicePixelRatio,
      bbox.top + bbox.height - 10 * devicePixelRatio,
      "right",
    );
    ctx.restore();
  }

  /** The best length and the chosen one. @param {uPlot} plot @param {Facts} facts */
  function marks(plot, { best, k, gain }) {
    const { ctx, bbox } = plot;
    ctx.save();
    if (best.k) {
      dot(plot, best.k, best.gain, "good", true);
      ctx.fillStyle = Page.colour("good");
      const x = plot.valToPos(best.k, "x", true);
      const side = x > bbox.left + bbox.width * 0.6 ? "right" : "left";
      label(
        plot,
        AccountWords.now().best(best.k, best.gain),
        x,
        plot.valToPos(best.gain, "y", true) - 16 * devicePixelRatio,
        side,
      );
    }
    dot(plot, k, gain, "ink", false);
    ctx.restore();
  }

  /** @param {uPlot} plot @param {number} k @param {number} gain @param {string} colour @param {boolean} full */
  function dot(plot, k, gain, colour, full) {
    const { ctx } = plot;
    ctx.setLineDash([]);
    ctx.beginPath();
    ctx.arc(
      plot.valToPos(k, "x", true),
      plot.valToPos(gain, "y", true),
      (full ? 6 : 9) * devicePixelRatio,
      0,
      2 * Math.PI,
    );
    ctx.fillStyle = ctx.strokeStyle = Page.colour(colour);
    ctx.lineWidth = 2 * devicePixelRatio;
    if (full) ctx.fill();
    else ctx.stroke();
  }

  /** @param {uPlot} plot @param {string} text @param {number} x @param {number} y @param {CanvasTextAlign} align */
  function label({ ctx }, text, x, y, align) {
    ctx.font = `${13 * devicePixelRatio}px ${getComputedStyle(document.body).fontFamily}`;
    ctx.textAlign = align;
    ctx.textBaseline = "alphabetic";
    ctx.fillText(text, x, y);
  }

  return { marks, shade };
})();
