// The list of rollouts: only the rows in sight are asked for and drawn, however many there are.

import { ask, button, duration, el, link, note, number } from "./dom.js";

const HEIGHT = 26, WINDOW = 100;
const OUTCOMES = { "": "all", passed: "passed", failed: "failed", unsolved: "unsolved", errored: "errored" };
const SORTS = { "": "newest first", order: "in order", reward: "by reward", turns: "by turns", tokens: "by tokens", time: "by time" };

export function rolloutList(place, state, keep) {
  const field = (name, placeholder, width) => el("input", { type: "search", name, placeholder, value: state[name], class: width, "aria-label": name, oninput: (event) => change(name, event.target.value.trim()) });
  const choice = (name, options) => el("select", { name, "aria-label": name, onchange: (event) => change(name, event.target.value) },
    Object.entries(options).map(([value, text]) => el("option", { value, selected: value === state[name] }, text)));
  const search = field("text", "text in rollouts  /", "wide");
  const kinds = { "": "all kinds", "step-*": "training", "eval-*": "evaluation", "expert*": "experts" };
  const fields = el("div", { class: "tools" }, choice("file", kinds), choice("outcome", OUTCOMES), field("task", "task, such as train/*"), field("step", "step", "short"), search, choice("sort", SORTS));
  const told = el("span", { class: "dim" });
  const problems = el("div", { class: "problem", hidden: true });
  const rows = el("div", { class: "rows" });
  const body = el("div", { class: "list", tabindex: 0, onscroll: () => paint() }, rows);
  const heads = el("div", { class: "row heads" }, ["id", "task", "step", "turns", "tokens", "reward", "end", "time"].map((text) => el("span", {}, text)));
  const node = el("section", {}, fields, problems, el("div", { class: "listbox" }, heads, body), told);
  let windows = new Map(), fitting = 0, mark = 0, version = 0, abort = new AbortController(), timer, again;

  function change(name, value) {
    state[name] = value;
    keep();
    clearTimeout(timer);
    timer = setTimeout(restart, 200);
  }
  const filters = () => ({ outcome: state.outcome, task: state.task || "*", file: state.file || "*", text: state.text, step: /^\d+$/.test(state.step) ? state.step : "", sort: state.sort || "newest" });

  function restart() {
    for (const each of fields.children) if (each.name && each.value !== state[each.name]) each.value = state[each.name];
    mark = 0;
    body.scrollTop = 0;
    refresh();
  }
  function refresh() {
    abort.abort();
    abort = new AbortController();
    version += 1;
    clearTimeout(again);
    (state.text ? searchOn(0, [], version) : load(Math.floor(body.scrollTop / HEIGHT / WINDOW), version)).catch((error) => {
      if (error.name !== "AbortError") note(error.message);
    });
  }
  // A text is looked for piece by piece: what was found is shown while the search goes on.
  async function searchOn(start, found, own) {
    const answer = await ask(`/api/runs/${place}/rollouts`, { ...filters(), start, limit: 500 }, { signal: abort.signal });
    if (own !== version) return;
    found.push(...answer.rows);
    windows = new Map();
    for (let at = 0; at < found.length; at += WINDOW) windows.set(at / WINDOW, found.slice(at, at + WINDOW));
    fitting = found.length;
    tell(answer, answer.next == null ? `${found.length} of ${answer.total} rollouts hold it` : `${found.length} so far, ${answer.next} of ${answer.total} looked through`);
    paint();
    if (answer.next != null && found.length < 20_000) await searchOn(answer.next, found, own);
  }
  async function load(page, own, keepOthers = false) {
    const answer = await ask(`/api/runs/${place}/rollouts`, { ...filters(), start: page * WINDOW, limit: WINDOW }, { signal: abort.signal });
    if (own !== version) return;
    if (!keepOthers) windows = new Map();
    windows.set(page, answer.rows);
    fitting = answer.fitting;
    tell(answer, fitting === answer.total ? `${number(answer.total)} rollouts` : `${number(fitting)} of ${number(answer.total)} rollouts`);
    paint();
    if (answer.left) again = setTimeout(refresh, 50);
  }
  function tell(answer, text) {
    told.textContent = answer.left ? `${text}; ${answer.left} files are still to be read` : text;
    problems.hidden = !(answer.damaged || answer.problem);
    problems.textContent = answer.damaged ? `${answer.damaged} damaged places; what is intact is listed. ${answer.problems[0]}` : answer.problem ?? "";
  }
  function paint() {
    rows.style.height = `${Math.max(1, fitting) * HEIGHT}px`;
    const first = Math.max(0, Math.floor(body.scrollTop / HEIGHT) - 4);
    const last = Math.min(fitting, first + Math.ceil(body.clientHeight / HEIGHT) + 8);
    const drawn = [];
    for (let at = first; at < last; at++) {
      const page = Math.floor(at / WINDOW);
      if (!windows.has(page)) {
        windows.set(page, []);
        const own = version;
        load(page, own, true).catch((error) => { windows.delete(page); if (error.name !== "AbortError") note(error.message); });
      }
      const row = windows.get(page)[at % WINDOW];
      if (row) drawn.push(draw(row, at));
    }
    rows.replaceChildren(...drawn);
    if (!fitting) rows.append(el("p", { class: "empty" }, told.textContent.includes("still to be read") ? "Reading…" : "No rollout fits."));
  }
  function draw(row, at) {
    const cells = [
      el("a", { href: link(`run/${place}/rollout`, { id: row.id }) }, row.name), row.task, String(row.step), String(row.turns), number(row.tokens),
      row.reward == null ? "–" : number(row.reward), row.failed ? `errored: ${row.end}` : row.end, duration(row.duration_s),
    ];
    const line = el("div", { class: `row ${row.outcome}${at === mark ? " mark" : ""}` }, cells.map((cell) => el("span", {}, cell)));
    line.style.top = `${at * HEIGHT}px`;
    return line;
  }
  function move(by) {
    mark = Math.max(0, Math.min(fitting - 1, mark + by));
    const top = mark * HEIGHT;
    if (top < body.scrollTop) body.scrollTop = top;
    if (top + HEIGHT > body.scrollTop + body.clientHeight) body.scrollTop = top + HEIGHT - body.clientHeight;
    paint();
  }
  return {
    node, restart, refresh,
    end: () => { abort.abort(); clearTimeout(timer); clearTimeout(again); version += 1; },
    keys: {
      "/": ["search in rollouts", () => search.focus()],
      j: ["next row", () => move(1)],
      k: ["row before", () => move(-1)],
      Enter: ["open the rollout", () => rows.querySelector(".mark a")?.click()],
      f: ["failed ones, or all", () => { change("outcome", state.outcome ? "" : "failed"); fields.children[1].value = state.outcome; }],
    },
  };
}
