// What an environment declares its texts to be (rock_env.spec), as elements. Each kind is one function here, which returns
// null for a text that is not of the kind: it is then shown as text. Texts become text nodes, and names of classes are ours.

import { el, svg } from "./dom.js";

const CELL = 16, MOST = 40, MOST_LINES = 5000;
const ring = (x, y) => svg("circle", { class: "ring", cx: x + 8, cy: y + 8, r: 3.5 });
const player = (x, y) => svg("circle", { class: "player", cx: x + 8, cy: y + 8, r: 5 });
const box = (x, y) => svg("rect", { class: "box", x: x + 3, y: y + 3, width: 10, height: 10, rx: 1.5 });
const boxOn = (x, y) => svg("rect", { class: "box on", x: x + 3, y: y + 3, width: 10, height: 10, rx: 1.5 });
const flag = (x, y) => svg("path", { class: "flag", d: `M${x + 5} ${y + 13}V${y + 3}l7 3-7 3` });
const hole = (x, y) => svg("circle", { class: "hole", cx: x + 8, cy: y + 8, r: 5.5 });
const DRAWN = {
  ice: [], floor: [], wall: [], hole: [hole], goal: [flag], player: [player], fallen: [hole, player], arrived: [flag, player],
  target: [ring], box: [box], box_on: [boxOn, ring], player_on: [ring, player], sign: [],
};

// A grid of characters as SVG: the first of the boards that has a look for every character of the text.
function board(text, boards) {
  const lines = text.split("\n").map((line) => [...line]);
  const wide = lines[0].length;
  if (!wide || wide > MOST || lines.length > MOST || lines.some((line) => line.length !== wide)) return null;
  const looks = boards.find((each) => lines.flat().every((sign) => Object.hasOwn(each, sign) && Object.hasOwn(DRAWN, each[sign])));
  if (!looks) return null;
  const picture = svg("svg", { class: "board", viewBox: `0 0 ${wide * CELL} ${lines.length * CELL}`, width: wide * CELL, height: lines.length * CELL, role: "img", "aria-label": text });
  lines.forEach((line, row) => line.forEach((sign, column) => {
    const x = column * CELL, y = row * CELL, look = looks[sign];
    picture.append(svg("rect", { class: `cell c-${look}`, x: x + 0.5, y: y + 0.5, width: CELL - 1, height: CELL - 1 }), ...DRAWN[look].map((draw) => draw(x, y)));
    if (look === "sign") picture.append(svg("text", { class: "sign", x: x + 8, y: y + 12, "text-anchor": "middle" }, sign));
  }));
  return picture;
}

// Lines of a page: what can be chosen stands in [brackets]; in a line of options, `colour: (red) [blue]`, what is chosen in (these).
const CHOICE = /\[([^[\]]{1,100})\]|\(([^()]{1,100})\)/g;

const OPTIONS = /^[^:[\]()]{1,60}: (?:[[(][^[\]()]{1,100}[\])] ?)+$/;

function page(text) {
  if (!/\[[^[\]]{1,100}\]/.test(text)) return null;
  const { shown, left } = some(text);
  return el("div", { class: "shot", tabindex: 0 }, shown.map((line, at) => {
    const parts = [], indent = Math.min(20, line.search(/\S|$/));
    const isOptions = OPTIONS.test(line);
    let last = 0;
    for (const found of line.matchAll(CHOICE)) {
      if (found[2] && !isOptions) continue;
      parts.push(line.slice(last, found.index), el("span", { class: found[1] ? "choice" : "choice chosen" }, found[1] ?? found[2]));
      last = found.index + found[0].length;
    }
    const told = /^(Instruction|Goal|Error|Note|Tab \d+)\b/.exec(line);
    const row = el("div", { class: told ? `line k-${told[1].slice(0, 4).trim().toLowerCase()}` : "line", dir: "auto" }, parts, line.slice(last));
    row.style.paddingLeft = `${indent * 6}px`;
    return row;
  }), left);
}

// Commands, edits and output: lines that were added or removed, tests that passed or failed.
const RULES = [
  ["bad", /^(FAILED|ERROR|FAIL:|not ok\b|E {3}|Traceback|exit code [1-9])|^\[(exit code [1-9]|timed out|killed)|\b(FAILED|ERROR)( +\[ *\d+%\])?$|^=+ .*\b\d+ (failed|error)|^FAILED \(|; not: /],
  ["good", /^(PASSED|ok\b)|^\[exit code 0\b|\bPASSED( +\[ *\d+%\])?$|^=+ .*\b\d+ passed|^OK$/],
  ["head", /^(diff --git |index [0-9a-f]{6,}\.|--- |\+\+\+ |@@ )/],
];
const EDIT = { "<": "removed", "=": "added", ">": "" };

function diff(text) {
  let edit = "", isHunk = false, isTold = false;
  const { shown, left } = some(text);
  const lines = shown.map((line) => {
    const marker = /^(<{7,}|={7,}|>{7,})\s*$/.exec(line);
    let kind = marker ? "head" : edit || RULES.find(([, rule]) => rule.test(line))?.[0] || "";
    if (marker && (line[0] === "<" || edit)) edit = EDIT[line[0]];
    isHunk = line.startsWith("@@ ") || (isHunk && /^[-+ \\]/.test(line));
    if (isHunk && !line.startsWith("@@ ")) kind = { "+": "added", "-": "removed" }[line[0]] ?? "";
    isTold ||= Boolean(kind);
    return el("span", { class: `line ${kind}` }, `${line}\n`);
  });
  return isTold ? el("pre", { class: "diff", dir: "auto" }, lines, left) : null;
}

// Elements for each line of a huge text would stop the browser: what is beyond stays one text.
function some(text) {
  const lines = text.split("\n");
  return { shown: lines.slice(0, MOST_LINES), left: lines.slice(MOST_LINES).join("\n") };
}

const DRAW = { board: ["seen"], page: ["seen"], diff: ["seen", "done", "graded", "told"] };

// A piece of a rollout as its environment's kind of picture, or null.
export function drawn({ kind, boards }, { kind: of, text }) {
  if (!Object.hasOwn(DRAW, kind) || !DRAW[kind].includes(of)) return null;
  return { board, page, diff }[kind](text, boards);
}

// A picture that came with an observation; the server says what is none.
export function image(source, name) {
  const node = el("img", { class: "shown", src: source, alt: name, loading: "lazy" });
  node.addEventListener("error", () => node.replaceWith(el("p", { class: "dim" }, "This file is no picture that a page shows: `ale replay artifact` writes it to a file.")));
  return node;
}

// The pictures of a rollout's turns, one at a time in one place. `frames`: [{turn, node, told}].
export function stage() {
  let frames = [], at = 0;
  const place = el("div", { class: "place" }), told = el("figcaption");
  const node = el("figure", { class: "stage", hidden: true, "aria-live": "polite" }, place, told);
  function show() {
    const frame = frames[at];
    node.hidden = frames.length < 2;
    if (node.hidden) return;
    place.replaceChildren(frame.node.isConnected ? frame.node.cloneNode(true) : el("p", { class: "dim" }, "no picture"));
    told.textContent = `${at + 1} of ${frames.length} · ${frame.told} · ← →`;
  }
  return {
    node,
    set(found) { frames = found; at = Math.min(at, Math.max(0, found.length - 1)); show(); },
    turn(wanted) { const found = frames.findIndex((frame) => frame.turn === wanted); if (found >= 0) { at = found; show(); } },
    move(by) { at = Math.max(0, Math.min(frames.length - 1, at + by)); show(); return frames[at]?.turn ?? ""; },
  };
}
