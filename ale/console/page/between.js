// What differs between two steps of a run: numbers by how far they moved, and tasks that other shares of rollouts passed.

import { ask, el, number } from "./dom.js";

export function stepsBeside(place, state, keep) {
  const field = (name) => el("input", { type: "number", name, value: state[name], class: "short", "aria-label": `${name} step`, oninput: (event) => { state[name] = event.target.value; keep(); refresh(); } });
  const body = el("div", { class: "columns" });
  const node = el("section", { hidden: true }, el("div", { class: "tools" }, "from step ", field("from"), " to step ", field("to")), body);
  const table = (heads, rows) => el("table", {}, el("thead", {}, el("tr", {}, heads.map((head) => el("th", {}, head)))), el("tbody", {}, rows.map((cells) => el("tr", {}, cells.map((cell) => el("td", {}, cell))))));
  let asked = 0;

  async function refresh() {
    const own = ++asked;
    const found = await ask(`/api/runs/${place}/between`, { first: state.from, last: state.to });
    if (own !== asked) return;
    const steps = [`step ${found.first ?? "–"}`, `step ${found.last ?? "–"}`];
    body.replaceChildren(
      el("div", {}, el("h2", {}, "Numbers that moved most"), el("p", { class: "dim" }, "Means of up to five steps around each; beside them, how many times the usual difference of two steps in a row."),
        table(["", ...steps, "×"], found.moved.map((each) => [each.name, number(each.first), number(each.last), number(each.size, 2)]))),
      el("div", {}, el("h2", {}, "Tasks that changed"), el("p", { class: "dim" }, "Passed of graded rollouts within two steps of each."),
        table(["", "", ...steps], found.tasks.map((each) => [each.kind, each.task, each.first.join(" of "), each.last.join(" of ")]))));
  }
  return { node, refresh };
}
