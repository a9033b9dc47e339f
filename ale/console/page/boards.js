// Boards of games, drawn from the observation as it is recorded. An environment is a row here: how its symbols look.
// Text with any other symbol is shown as text.

import { svg } from "./dom.js";

const LAKE = { P: "player", X: "fallen", "√": "arrived", G: "goal" };
const SYMBOLS = {
  frozen_lake: { gem: { ...LAKE, _: "ice", O: "hole" }, gymnasium: { ...LAKE, S: "ice", F: "ice", H: "hole" } },
  sokoban: {
    roll: { "#": "wall", _: "floor", O: "target", X: "box", "√": "boxon", P: "player", S: "playeron" },
    boxoban: { "#": "wall", " ": "floor", ".": "target", $: "box", "*": "boxon", "@": "player", "+": "playeron" },
    letters: { W: "wall", ".": "floor", G: "target", B: "box", C: "boxon", A: "player", "@": "playeron" },
  },
};
const CELL = 16, MOST = 40;
const ring = (x, y) => svg("circle", { class: "ring", cx: x + 8, cy: y + 8, r: 3.5 });
const player = (x, y) => svg("circle", { class: "player", cx: x + 8, cy: y + 8, r: 5 });
const box = (x, y) => svg("rect", { class: "box", x: x + 3, y: y + 3, width: 10, height: 10, rx: 1.5 });
const boxOn = (x, y) => svg("rect", { class: "box on", x: x + 3, y: y + 3, width: 10, height: 10, rx: 1.5 });
const flag = (x, y) => svg("path", { class: "flag", d: `M${x + 5} ${y + 13}V${y + 3}l7 3-7 3` });
const hole = (x, y) => svg("circle", { class: "hole", cx: x + 8, cy: y + 8, r: 5.5 });
const DRAWN = {
  ice: [], floor: [], wall: [], hole: [hole], goal: [flag], player: [player], fallen: [hole, player], arrived: [flag, player],
  target: [ring], box: [box], boxon: [boxOn, ring], playeron: [ring, player],
};

// The board as SVG, or null where the text is none. `params` is the environment's arguments as JSON.
export function board(env, params, text) {
  const kinds = Object.hasOwn(SYMBOLS, env) ? SYMBOLS[env] : null;
  if (!kinds) return null;
  let chosen;
  try { chosen = JSON.parse(params).symbols; } catch { /* the first kind */ }
  const looks = Object.hasOwn(kinds, chosen) ? kinds[chosen] : Object.values(kinds)[0];
  const lines = text.split("\n").map((line) => [...line]);
  const wide = lines[0].length;
  if (!wide || wide > MOST || lines.length > MOST || !lines.every((line) => line.length === wide && line.every((sign) => Object.hasOwn(looks, sign)))) return null;
  const picture = svg("svg", { class: `board ${env}`, viewBox: `0 0 ${wide * CELL} ${lines.length * CELL}`, width: wide * CELL, height: lines.length * CELL, role: "img", "aria-label": text });
  lines.forEach((line, row) => line.forEach((sign, column) => {
    const x = column * CELL, y = row * CELL, look = looks[sign];
    picture.append(svg("rect", { class: `cell c-${look}`, x: x + 0.5, y: y + 0.5, width: CELL - 1, height: CELL - 1 }), ...DRAWN[look].map((draw) => draw(x, y)));
  }));
  return picture;
}
