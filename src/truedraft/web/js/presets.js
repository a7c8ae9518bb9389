// @ts-check
/**
 * Four situations of eight draft positions and a bonus position, over six tokens each. The numbers are made up to be
 * typical of their situation; in a real model every pair depends on all tokens before, here each position has its own.
 *
 * @typedef {object} Pairs
 * @property {string[][]} tokens  [9][6]
 * @property {number[][]} p  [9][6]
 * @property {number[][]} q  [8][6]
 * @typedef {"story" | "code" | "copied" | "greedy"} PresetName
 */
const Presets = (() => {
  const POSITIONS = 8;

  /** @param {[string, string, string?][]} rows  tokens, p and q in per cent, separated by spaces @returns {Pairs} */
  function pairs(rows) {
    /** @param {string} text */
    const shares = (text) => text.split(" ").map((share) => Number(share) / 100);
    return {
      tokens: rows.map(([tokens]) => tokens.split(" ")),
      p: rows.map(([, p]) => shares(p)),
      q: rows.slice(0, POSITIONS).map(([, , q]) => shares(q ?? "")),
    };
  }

  const code = pairs([
    ["for while if return print #", "86 5 4 2 2 1", "80 7 6 3 3 1"],
    ["i x item n line _", "72 10 8 5 3 2", "66 14 6 8 4 2"],
    ["in , = : of to", "96 2 1 0.5 0.3 0.2", "93 4 1 1 0.5 0.5"],
    ["range enumerate items data list zip", "70 10 7 6 4 3", "62 6 12 10 6 4"],
    ["( : [ . , )", "97 1 1 0.5 0.3 0.2", "95 2 1 1 0.5 0.5"],
    ["len 10 n 1 0 100", "44 20 15 10 7 4", "36 28 12 11 8 5"],
    ["( ) ): , + *", "90 3 4 1 1 1", "84 5 6 2 2 1"],
    ["data items x list s a", "40 22 14 10 8 6", "33 20 19 12 9 7"],
    [")): ): ) , [ .", "88 6 3 1 1 1"],
  ]);

  const story = pairs([
    ["The A Every Nobody Once Rain", "34 16 14 14 12 10", "18 12 4 6 46 14"],
    ["lantern house sea old wind girl", "30 18 16 14 12 10", "4 34 8 34 6 14"],
    ["remembered was knew kept had spoke", "28 16 16 16 14 10", "4 48 6 4 32 6"],
    ["every a the her what no", "30 18 18 14 10 10", "4 28 50 10 4 4"],
    ["hand voice winter name door ship", "26 20 18 14 14 8", "8 10 4 30 38 10"],
    ["that it and , of .", "32 18 16 14 10 10", "8 6 24 44 8 10"],
    ["had ever once she they never", "26 20 18 14 12 10", "44 4 4 34 10 4"],
    ["carried lit left loved touched lost", "28 20 16 14 12 10", "6 4 46 14 6 24"],
    ["it them . , her away", "30 20 16 14 12 8"],
  ]);

  const copied = pairs([
    ["total sum result price x cost", "97 1 1 0.5 0.3 0.2", "100 0 0 0 0 0"],
    ["= += ( . , :", "98 1 0.5 0.2 0.2 0.1", "100 0 0 0 0 0"],
    ["price cost item x 0 float", "94 2 2 1 0.5 0.5", "100 0 0 0 0 0"],
    ["* + - / ** )", "96 2 1 0.5 0.3 0.2", "100 0 0 0 0 0"],
    ["count quantity n amount 2 1", "58 30 5 4 2 1", "100 0 0 0 0 0"],
    ["+ - ) * / ;", "84 9 4 2 0.5 0.5", "100 0 0 0 0 0"],
    ["tax fee 1 shipping total rate", "72 9 8 6 3 2", "100 0 0 0 0 0"],
    [") ; , + # ]", "95 2 1 1 0.5 0.5", "100 0 0 0 0 0"],
    ["return print total if for #", "76 10 6 4 2 2"],
  ]);

  const greedy = pairs([
    ["The In It Paris France A", "100 0 0 0 0 0", "88 5 3 2 1 1"],
    ["capital city answer name best most", "100 0 0 0 0 0", "80 11 4 2 2 1"],
    ["of is city in and ,", "100 0 0 0 0 0", "97 1 1 0.5 0.3 0.2"],
    ["France the Paris Europe a Italy", "100 0 0 0 0 0", "90 6 1 1 1 1"],
    ["is , has was and in", "100 0 0 0 0 0", "93 3 1 1 1 1"],
    ["Paris the a located called known", "100 0 0 0 0 0", "62 17 9 6 3 3"],
    [". , and - ; :", "100 0 0 0 0 0", "70 20 5 2 2 1"],
    ["It The Paris With In Its", "0 100 0 0 0 0", "41 34 13 5 4 3"],
    ["city river Eiffel Louvre Seine country", "100 0 0 0 0 0"],
  ]);

  const all = { story, code, copied, greedy };
  const names = /** @type {PresetName[]} */ (Object.keys(all));

  /** A copy that may be edited. @param {PresetName} name @returns {Pairs} */
  function copy(name) {
    return structuredClone(all[name]);
  }

  return { POSITIONS, copy, names };
})();
