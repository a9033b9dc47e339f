// Things side by side: two rollouts with the place where they part, a group, several runs.

import { ask, el, link, number } from "./dom.js";
import { chart } from "./chart.js";
import { lineOf } from "./run.js";
import { shown } from "./rollout.js";

const MOST = 12;
const CURVES = [["Held-out success", ["eval", "success", , "success_low", "success_high"]], ["Success of rollouts", ["train", "success"]], ["Reward", ["train", "reward"]], ["Loss", ["train", "loss"]], ["Entropy", ["train", "entropy"]]];

function column(found, place, apart) {
  const turns = new Map(found.turns.map((turn) => [turn.turn, turn]));
  const nodes = shown(found.parts.filter((part) => part.kind !== "about"), turns, place, found, () => null, null, null);
  const cell = nodes.find((node) => Number(node.dataset?.turn ?? -1) === apart);
  cell?.classList.add("apart");
  return el("div", { class: "column" },
    el("h2", {}, el("a", { href: link(`run/${place}/rollout`, { id: found.row.id }) }, found.row.name), " ", el("span", { class: `badge ${found.row.outcome}` }, found.row.outcome)),
    el("p", { class: "dim" }, `task ${found.row.task} · step ${found.row.step} · reward ${number(found.row.reward)}`), nodes);
}

export async function showPair(page, { one, first, other, second }, crumbs) {
  const [left, right, apart] = await Promise.all([
    ask(`/api/runs/${one}/rollout`, { id: first }), ask(`/api/runs/${other}/rollout`, { id: second }), ask("/api/pair", { one, first, other, second })]);
  crumbs([[`${left.row.name} beside ${right.row.name}`]]);
  page.append(
    el("h1", {}, "Two rollouts side by side"), el("p", { class: apart.where ? "parting" : "dim" }, apart.where ? `They part in ${apart.where}: ${apart.first} | ${apart.second}` : "They are equal but for times."),
    el("div", { class: "columns", tabindex: 0 }, column(left, one, apart.turn), column(right, other, apart.turn)));
  page.querySelector(".apart")?.scrollIntoView({ block: "center" });
}

export async function showGroup(page, { id }, crumbs, place) {
  const [run, first] = await Promise.all([ask(`/api/runs/${place}`), ask(`/api/runs/${place}/rollout`, { id })]);
  crumbs([[run.name, link(`run/${place}`)], [`group of ${first.row.name}`]]);
  const members = first.near.group.slice(0, MOST);
  const found = await Promise.all(members.map(([, each]) => ask(`/api/runs/${place}/rollout`, { id: each })));
  page.append(el("h1", {}, "A group of rollouts"), el("p", { class: "dim" }, `${members.length} of ${first.near.group.length} rollouts of one group: task ${first.row.task}, step ${first.row.step}`), el("div", { class: "columns", tabindex: 0 }, found.map((each) => column(each, place, -1))));
}

export async function showRunsBeside(page, { runs = "" }, crumbs) {
  const places = runs.split(",").slice(0, 6);
  const names = [...new Set(CURVES.flatMap(([, [, name, , low, high]]) => [name, low, high]))].filter(Boolean).join(",");
  const [told, ...found] = await Promise.all([ask("/api/compare", { runs: places.join(",") }), ...places.map((place) => ask(`/api/runs/${place}/metrics`, { names }))]);
  crumbs([["compare"]]);
  const label = (at) => told.runs[at].name;
  page.append(
    el("div", { class: "tools" }, el("h1", {}, "Runs side by side"), told.parting ? el("span", { class: "parting" }, `They part at step ${told.parting.step}, in ${told.parting.name}`) : null),
    el("section", { class: "charts" }, CURVES.map(([title, line]) => chart(title, found.map((each, at) => ({ ...lineOf(each.series, line), name: label(at) }))))),
    el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, el("th", {}, "setting that differs"), told.runs.map((run) => el("th", {}, el("a", { href: link(`run/${run.place}`) }, run.name))))),
      el("tbody", {}, Object.entries(told.settings).map(([name, values]) => el("tr", {}, el("td", {}, name), values.map((value) => el("td", {}, value))))))));
}
