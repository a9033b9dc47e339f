// One run: its curves, the list of its rollouts, the grid of tasks by steps. Follows the run while it goes on.

import { ask, button, duration, el, link, note, number, replaceParameters } from "./dom.js";
import { KEPT } from "./kept.js";
import { chart } from "./chart.js";
import { rolloutList } from "./list.js";
import { taskGrid } from "./grid.js";
import { stepsBeside } from "./between.js";

const ROLES = ["samplers", "environments", "learner", "rewards"];
const share = (top, below) => top.map((value, at) => (below[at] ? value / below[at] : null));
const idle = (values) => values.map((value) => (value == null ? null : Math.max(0, 1 - value)));
// What is drawn without being asked for: [title, [[kind, name, label, low, high, below]], whether it lies between 0 and 1].
const CHARTS = [
  ["Success", [["train", "success", "rollouts"], ["eval", "success", "held out", "success_low", "success_high"]], true],
  ["Reward", [["train", "reward", "reward"]]],
  ["Loss", [["train", "loss", "loss"]]],
  ["Entropy, nats per token", [["train", "entropy", "mean", "entropy/turn_low", "entropy/turn_high"]]],
  ["Groups that teach, share", [["train", "mixed_groups", "mixed", , , "groups"]], true],
  ["Lag, versions", [["train", "lag/mean", "mean"], ["train", "lag/max", "max"]]],
  ["Mismatch of sampler and learner", [["train", "mismatch/token_abs", "mean |Δ log p|"]]],
  ["Idle, share of the step", [...ROLES.map((role) => ["train", `busy/${role}`, role, , , "idle"]), ["train", "time/idle", "machine"]], true],
];

export async function showRun(page, parameters, crumbs, place) {
  const run = await ask(`/api/runs/${place}`);
  crumbs([[run.name]]);
  const head = el("div", { class: "tools" });
  const charts = el("section", { class: "charts" });
  const state = { file: "", task: "", step: "", outcome: "", text: "", sort: "", metric: "", tab: "", from: "", to: "", ...parameters };
  const keep = () => replaceParameters(`run/${place}`, state);
  const more = el("select", { "aria-label": "another metric", onchange: () => { state.metric = more.value; keep(); draw().catch(fail); } });
  const leftOut = el("span", { class: "dim" });
  const list = rolloutList(place, state, keep);
  const grid = taskGrid(place, (filter) => { Object.assign(state, filter, { tab: "" }); keep(); list.restart(); choose(); });
  const beside = stepsBeside(place, state, keep);
  const views = { "": ["Rollouts", list], grid: ["Tasks × steps", grid], between: ["Between two steps", beside] };
  const tabs = el("div", { class: "tabs" }, Object.entries(views).map(([name, [text]]) => button(text, () => tab(name))));
  page.append(head, charts, el("div", { class: "tools" }, more, leftOut), tabs, list.node, grid.node, beside.node);

  function tab(name) { state.tab = name; keep(); choose(); }
  function choose() {
    Object.entries(views).forEach(([name, [, view]], at) => {
      tabs.children[at].setAttribute("aria-pressed", String(name === state.tab));
      view.node.hidden = name !== state.tab;
    });
    if (state.tab) views[state.tab][1].refresh().catch(fail);
  }
  async function draw() {
    const now = await ask(`/api/runs/${place}`);
    drawHead(head, now);
    const names = CHARTS.flatMap(([, lines]) => lines.flatMap(([, name, , low, high, below]) => [name, low, high, below]));
    const extra = state.metric.split(":");
    const found = await ask(`/api/runs/${place}/metrics`, { names: [...new Set([...names, extra[1]])].filter(Boolean).join(",") });
    if (found.problem && !now.problem) head.append(el("p", { class: "problem" }, found.problem));
    const onstep = (step) => { state.step = String(step); keep(); list.restart(); };
    const drawn = CHARTS.map(([title, lines, isShare]) => chart(title, lines.map((line) => lineOf(found.series, line)), { onstep, isShare }));
    if (extra[1]) drawn.push(chart(`${extra[0]}: ${extra[1]}`, [lineOf(found.series, [extra[0], extra[1], extra[1]])], { onstep }));
    charts.replaceChildren(...(Object.keys(found.series).length ? drawn : [el("p", { class: "empty" }, "No step is on record.")]));
    leftOut.textContent = found.left_out ? `${number(found.left_out)}${found.left_out === 1000 ? " or more" : ""} further kinds of metrics are left out` : "";
    const options = Object.entries(found.names).flatMap(([kind, each]) => each.map((name) => `${kind}:${name}`));
    if (more.options.length !== options.length + 1) {
      more.replaceChildren(el("option", { value: "" }, "another metric…"), ...options.map((name) => el("option", { value: name, selected: name === state.metric }, name)));
    }
  }
  const fail = (error) => note(error.message);
  await draw();
  choose();
  list.restart();
  const stop = follow(place, () => { draw().catch(fail); list.refresh(); if (!grid.node.hidden) grid.refresh().catch(fail); });
  return {
    end: () => { stop(); list.end(); },
    keys: { ...list.keys, m: ["tasks by steps, or rollouts", () => tab(state.tab ? "" : "grid")] },
  };
}

export function lineOf(series, [kind, name, label, low, high, below]) {
  const found = series[kind] ?? { step: [], values: {} };
  let values = found.values[name] ?? [];
  if (below === "idle") values = idle(values);
  else if (below) values = share(values, found.values[below] ?? []);
  return { name: label, steps: found.step, values, low: found.values[low], high: found.values[high], dots: kind === "eval" };
}

function drawHead(head, run) {
  const facts = [run.settings.env, run.settings.algo, run.settings.model, run.seed == null ? null : `seed ${run.seed}`, run.steps_wanted ? `step ${run.steps} of ${run.steps_wanted}` : null, duration(run.train_s)];
  head.replaceChildren(
    el("h1", { title: run.folder }, run.name),
    el("span", { class: `state ${run.state.replace(" ", "-")}` }, run.state),
    el("span", { class: "dim" }, facts.filter((fact) => fact && fact !== "–").join(" · ")),
    healthOf(run.signs),
    run.doing ? el("span", { class: "doing" }, run.doing) : "",
    run.problem ? el("p", { class: "problem" }, run.problem) : "");
}

function healthOf({ checks, bad }) {
  if (!checks) return "";
  return bad.length ? el("p", { class: "problem health" }, `Not healthy: ${bad.join("; ")}.`) : el("span", { class: "dim health" }, `no sign of trouble in ${checks} checks`);
}

// Calls back when the run's folder has changed, at once after it and not more often than the page can draw.
function follow(place, changed) {
  if (KEPT) return () => {};
  const events = new EventSource(`/api/runs/${place}/events`);
  let waits = false, first = true;
  events.onmessage = () => {
    if (first) { first = false; return; }
    if (waits) return;
    waits = true;
    setTimeout(() => { waits = false; changed(); }, 100);
  };
  return () => events.close();
}
