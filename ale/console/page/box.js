// One sandbox: what it is, its history, and what its background processes wrote.

import { ago, ask, button, duration, el, link, note, number, replaceParameters } from "./dom.js";
import { gib, stateOf, table, within } from "./rock.js";
import { followRock } from "./server.js";

const IS_A_USE = "To ask for processes and logs is a use of the sandbox: its idle time begins anew.";

export async function showSandbox(page, parameters, crumbs) {
  const id = parameters.id ?? "";
  const state = { id, process: "", ...parameters };
  crumbs([["ROCK", link("rock")], [id]]);
  const about = el("section", { class: "about" });
  const problem = el("p", { class: "problem", hidden: true });
  const processes = el("section", {}, button("processes and logs", () => list(), { title: "l" }), " ", el("span", { class: "dim" }, IS_A_USE));
  const output = el("section");
  const { runs } = await ask("/api/runs");
  const found = el("p", { class: "steps" }, runs.length ? el("span", { class: "dim" }, "its rollouts in") : null, runs.slice(0, 20).map((run) => el("a", { href: link(`run/${run.place}`, { text: id }) }, run.name)));
  page.append(problem, about, found, processes, output);

  async function guarded(act) {
    try {
      await act();
      problem.hidden = true;
    } catch (error) {
      problem.textContent = error.message;
      problem.hidden = false;
    }
  }
  const draw = () => guarded(async () => { about.replaceChildren(...facts(await ask("/api/rock/sandbox", { id }))); });
  const list = () => guarded(async () => {
    const known = await ask("/api/rock/processes", { id });
    processes.replaceChildren(el("h2", {}, "Background processes"), el("p", { class: "dim" }, IS_A_USE), table(["process", "state", "for", "pid", "command"], known.map((each) => [
      button(each.name, () => read(each.name)), each.state, duration(each.for_s), String(each.pid), el("pre", {}, each.command)]), "No background processes."));
  });
  const read = (name) => guarded(async () => {
    state.process = name;
    replaceParameters("rock/box", state);
    const said = await ask("/api/rock/log", { id, process: name });
    output.replaceChildren(...Object.entries(said).flatMap(([stream, { text, before }]) => [
      el("h2", {}, `${name}: ${stream}`), before ? el("p", { class: "dim" }, `${number(before)} bytes came before`) : "", el("pre", { class: "log" }, text || "(nothing)")]));
  });
  await draw();
  if (state.process) await read(state.process);
  return {
    end: followRock(draw),
    keys: {
      l: ["processes and logs", list], b: ["back to the sandboxes", () => { location.hash = link("rock"); }],
      r: ["read the log again", () => (state.process ? read(state.process) : note("choose a process first"))],
    },
  };
}

function facts(box) {
  const ends = [["lifetime", box.expires_at], ["lease", box.lease_expires_at], ["idle", box.idle_expires_at]].filter(([, at]) => at != null);
  const amounts = box.resources;
  const rows = [
    ["for", box.environment], ["image", box.image], ["backend", box.backend], ["tenant", box.tenant],
    ["resources", amounts && `${number(amounts.cpus)} CPUs, ${gib(amounts.memory_bytes)} memory, ${gib(amounts.disk_bytes)} disk, ${amounts.pids} processes, ${amounts.gpus} GPUs`],
    ["labels", Object.entries(box.labels).map(([name, value]) => `${name}=${value}`).join(" ")],
    ["made", ago(box.created_at)], ["ends", box.state === "DELETED" ? "" : ends.map(([what, at]) => `${what} ${within(at)}`).join(", ")],
    ["outlives its server", box.durable ? "yes" : "no"], ["builds upon snapshot", box.snapshot_id], ["spec", box.spec_digest],
  ];
  return [
    el("h1", {}, box.id, " ", stateOf(box.state), " ", el("span", { class: "dim" }, box.reason)),
    table(["", ""], rows.filter(([, text]) => text).map(([name, text]) => [el("span", { class: "dim" }, name), text]), ""),
    el("h2", {}, "History"),
    table(["state", "when", "reason"], box.history.map(([now, reason, at]) => [stateOf(now), ago(at), reason]), "None."),
  ];
}
