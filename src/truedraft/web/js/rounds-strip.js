// @ts-check
/** The whole run as a strip of bars, a round each, as high as the tokens it emitted. On a canvas, for long runs. */
const RoundsStrip = (() => {
  /** @param {HTMLCanvasElement} canvas @param {TraceRound[]} rounds @param {number[]} visible @param {number} at */
  function draw(canvas, rounds, visible, at) {
    const scale = devicePixelRatio;
    const width = (canvas.width = canvas.clientWidth * scale),
      height = (canvas.height = canvas.clientHeight * scale);
    const pen = canvas.getContext("2d");
    if (!pen || !visible.length) return;
    const colours = { accepted: Page.colour("shared"), own: Page.colour("muted"), here: Page.colour("ink") };
    const most = visible.reduce((top, place) => Math.max(top, rounds[place].emitted), 1);
    const step = width / visible.length;
    visible.forEach((place, i) => {
      const unit = (height - 6 * scale) / most;
      const stands = TraceFacts.accepted(rounds[place]),
        emitted = Math.max(0, rounds[place].emitted);
      const thick = Math.max(step - (step > 4 * scale ? scale : 0), 1);
      pen.fillStyle = colours.own;
      pen.fillRect(i * step, height - emitted * unit, thick, (emitted - stands) * unit);
      pen.fillStyle = colours.accepted;
      pen.fillRect(i * step, height - stands * unit, thick, stands * unit);
    });
    pen.fillStyle = colours.here;
    pen.fillRect(at * step, 0, Math.max(step, 2 * scale), 4 * scale);
  }

  /** @param {HTMLCanvasElement} canvas @param {MouseEvent} event @param {number} count */
  function placeAt(canvas, event, count) {
    return Math.floor((event.offsetX / canvas.clientWidth) * count);
  }

  return { draw, placeAt };
})();
