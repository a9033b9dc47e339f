// Tasks by steps: the share of rollouts that passed, a cell each. Drawn on a canvas: there may be a hundred thousand.

import { ask, button, el } from "./dom.js";

const CELL = 14, LABEL = 170, HEAD = 20;

export function taskGrid(place, choose) {
  const canvas = el("canvas", { role: "img", "aria-label": "share of rollouts that passed, tasks by steps" });
  const told = el("p", { class: "dim" });
  const kinds = el("div", { class: "tabs small" });
  const unsolved = el("p", { class: "unsolved" });
  const node = el("section", { hidden: true }, kinds, told, unsolved, el("div", { class: "scroll", tabindex: 0 }, canvas));
  let found = {}, kind = null;

  function paint() {
    kinds.replaceChildren(...Object.keys(found).map((name) => button(name, () => { kind = name; paint(); }, { "aria-pressed": String(name === kind) })));
    const { steps, tasks, of } = found[kind] ?? { steps: [], tasks: [], of: 0 };
    told.textContent = tasks.length ? `${tasks.length} of ${of} tasks, those played in most steps first; a cell leads to its rollouts.` : "No rollouts.";
    const never = found[kind]?.never_solved ?? [];
    unsolved.replaceChildren(`${found[kind]?.unsolved ?? 0} of ${of} tasks are never solved${never.length ? ": " : "."}`, ...never.map((task) => button(task, () => lead(task, ""), { class: "quiet" })));
    const ratio = devicePixelRatio || 1;
    const width = LABEL + steps.length * CELL, height = HEAD + tasks.length * CELL;
    canvas.width = Math.min(32_000, width * ratio);
    canvas.height = Math.min(32_000, height * ratio);
    canvas.style.width = `${canvas.width / ratio}px`;
    canvas.style.height = `${canvas.height / ratio}px`;
    const pen = canvas.getContext("2d");
    const style = getComputedStyle(document.documentElement);
    pen.scale(ratio, ratio);
    pen.font = "11px system-ui, sans-serif";
    pen.fillStyle = style.getPropertyValue("--dim");
    steps.forEach((step, at) => { if (at % 5 === 0 || steps.length < 12) pen.fillText(String(step), LABEL + at * CELL, 12, CELL * 4); });
    const colours = ["--bad", "--mixed", "--good"].map((name) => style.getPropertyValue(name));
    tasks.forEach(([, task, cells], row) => {
      const top = HEAD + row * CELL;
      pen.fillStyle = style.getPropertyValue("--text");
      pen.fillText(task.slice(0, 40), 0, top + 11, LABEL - 8);
      cells.forEach((cell, at) => {
        if (!cell) return;
        const [passed, graded] = cell;
        pen.fillStyle = graded ? colours[passed === graded ? 2 : passed ? 1 : 0] : style.getPropertyValue("--line");
        pen.globalAlpha = passed && passed < graded ? 0.35 + (0.65 * passed) / graded : 1;
        pen.fillRect(LABEL + at * CELL, top, CELL - 2, CELL - 2);
        pen.globalAlpha = 1;
      });
    });
  }
  function at(event) {
    const area = canvas.getBoundingClientRect();
    const { steps = [], tasks = [] } = found[kind] ?? {};
    const step = Math.floor((event.clientX - area.left - LABEL) / CELL), row = Math.floor((event.clientY - area.top - HEAD) / CELL);
    const cell = tasks[row]?.[2][step];
    return cell ? { task: tasks[row][1], step: steps[step], cell } : null;
  }
  canvas.addEventListener("pointermove", (event) => {
    const under = at(event);
    canvas.title = under ? `${under.task}, step ${under.step}: ${under.cell[0]} of ${under.cell[1]} passed` : "";
    canvas.style.cursor = under ? "pointer" : "";
  });
  canvas.addEventListener("click", (event) => {
    const under = at(event);
    if (under) lead(under.task, String(under.step));
  });
  const lead = (task, step) => choose({ task: task.replace(/[[*?]/g, "[$&]"), step, file: `${kind}*`, outcome: "", text: "" });
  return {
    node,
    async refresh() {
      found = await ask(`/api/runs/${place}/grid`);
      if (!(kind in found)) kind = "eval" in found ? "eval" : Object.keys(found)[0];
      paint();
    },
  };
}
