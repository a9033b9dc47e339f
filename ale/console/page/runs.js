// The table of runs.

import { ago, ask, button, duration, el, link, note, number, svg } from "./dom.js";

export async function showRuns(page, parameters, crumbs) {
  crumbs([]);
  const chosen = new Set();
  const filter = el("input", { type: "search", placeholder: "filter by name, env, algo  /", "aria-label": "filter", oninput: draw });
  const body = el("tbody");
  const compare = button("compare", () => {
    if (chosen.size < 2) note("tick two runs or more to compare them");
    else location.hash = link("compare", { runs: [...chosen].join(",") });
  });
  const places = el("span", { class: "dim" });
  page.append(
    el("div", { class: "tools" }, el("h1", {}, "Runs"), filter, compare, places),
    el("div", { class: "scroll", tabindex: 0 }, el("table", { class: "runs" },
      el("thead", {}, el("tr", {}, ["tick", "run", "state", "env", "algo", "seed", "step", "held-out success", "curve", "time", "changed"].map((head) => el("th", {}, ["tick", "curve"].includes(head) ? el("span", { class: "unseen" }, head) : head)))),
      body)),
  );
  let runs = [];
  let told = "";
  let mark = 0;

  function draw() {
    const words = filter.value.toLowerCase().split(/\s+/);
    const rows = runs.filter((run) => words.every((word) => [run.name, ...Object.values(run.settings)].join(" ").toLowerCase().includes(word)));
    mark = Math.min(mark, Math.max(0, rows.length - 1));
    body.replaceChildren(...rows.map((run, at) => row(run, chosen, at === mark)));
    if (!rows.length) body.append(el("tr", {}, el("td", { colspan: 11, class: "empty" }, runs.length ? "No run fits." : "No runs here yet. `ale train --env frozen_lake --algo ipa` makes one.")));
  }
  async function refresh() {
    const found = await ask("/api/runs");
    places.textContent = `${found.runs.length} in ${found.places}`;
    const text = JSON.stringify(found);
    runs = found.runs.sort((one, other) => (other.changed ?? 0) - (one.changed ?? 0));
    if (text !== told) draw();
    told = text;
  }
  await refresh();
  const timer = setInterval(() => document.hidden || refresh().catch((error) => note(error.message)), 3000);
  const move = (by) => { mark += by; mark = Math.max(0, mark); draw(); body.children[mark]?.scrollIntoView({ block: "nearest" }); };
  return {
    end: () => clearInterval(timer),
    keys: {
      "/": ["filter", () => filter.focus()],
      j: ["next run", () => move(1)],
      k: ["run before", () => move(-1)],
      Enter: ["open the run", () => body.querySelector("tr.mark a")?.click()],
      x: ["tick the run", () => body.querySelector("tr.mark input")?.click()],
      c: ["compare ticked runs", () => compare.click()],
    },
  };
}

function row(run, chosen, marked) {
  const tick = el("input", { type: "checkbox", "aria-label": "compare", checked: chosen.has(run.place), onchange: () => (tick.checked ? chosen.add(run.place) : chosen.delete(run.place)) });
  const last = run.curve.at(-1);
  const success = last ? `${number(last[1])}` : "–";
  const interval = last?.[2] != null ? ` [${number(last[2], 2)}, ${number(last[3], 2)}]` : "";
  const cells = [
    tick,
    [el("a", { href: link(`run/${run.place}`), title: run.folder }, run.name), run.problem ? el("div", { class: "problem small" }, run.problem) : null],
    el("span", { class: `state ${run.state.replace(" ", "-")}`, title: run.doing }, run.problem ? "damaged" : run.state),
    run.settings.env ?? "–", run.settings.algo ?? "–", run.seed ?? "–",
    run.steps_wanted ? `${run.steps} / ${run.steps_wanted}` : run.steps || "–",
    [el("b", {}, success), el("span", { class: "dim" }, interval)],
    spark(run.curve), duration(run.train_s), el("span", { class: "dim" }, ago(run.changed)),
  ];
  return el("tr", { class: marked ? "mark" : "" }, cells.map((cell, at) => el("td", { class: at > 4 ? "number" : "" }, cell)));
}

function spark(curve) {
  const points = curve.filter(([, value]) => value != null);
  if (points.length < 2) return "";
  const first = points[0][0], width = points.at(-1)[0] - first || 1;
  const line = points.map(([step, value]) => `${(2 + (76 * (step - first)) / width).toFixed(1)},${(18 - 16 * value).toFixed(1)}`);
  return svg("svg", { class: "spark", viewBox: "0 0 80 20" }, svg("polyline", { points: line.join(" ") }));
}
