// One rollout: its turns, its tokens, why it has its reward, and what stands around it.

import { ask, button, copy, el, link, note, number, duration, replaceParameters } from "./dom.js";
import { board } from "./boards.js";
import { HEATS, NEEDS_ACCOUNT, heat, scales, totals } from "./tokens.js";

const WINDOW = 300;

export async function showRollout(page, parameters, crumbs, place) {
  const id = parameters.id ?? "";
  const [run, first] = await Promise.all([ask(`/api/runs/${place}`), ask(`/api/runs/${place}/rollout`, { id, limit: WINDOW })]);
  const state = { id, heat: "", turn: "", ...parameters };
  const keep = () => replaceParameters(`run/${place}/rollout`, state);
  const { row, near } = first;
  crumbs([[run.name, link(`run/${place}`)], [row.name]]);
  const account = new Map();
  const parts = [...first.parts], turns = new Map(first.turns.map((turn) => [turn.turn, turn]));
  const go = (other) => (other == null ? note("there is none") : (location.hash = link(`run/${place}/rollout`, { id: other, heat: state.heat })));
  const nextStep = near.steps.find(([step]) => step > row.step) ?? near.steps[0];
  const body = el("div", { class: "transcript" });
  const legend = el("div", { class: "legend" });
  const modes = el("select", { "aria-label": "colour tokens by", onchange: () => choose(modes.value) },
    el("option", { value: "" }, "no tokens"), Object.entries(HEATS).map(([name, text]) => el("option", { value: name, selected: name === state.heat }, text)));
  let marked = -1;

  page.append(header(first, place), el("div", { class: "tools sticky" },
    button("← previous", () => go(near.previous), { title: "p" }), button("next →", () => go(near.next), { title: "n" }),
    button("next failed", () => go(near.next_failed), { title: "f" }),
    button(nextStep ? `same task, step ${nextStep[0]}` : "task in no other step", () => go(nextStep?.[1]), { title: "s", disabled: !nextStep }),
    near.group.length > 1 ? el("a", { href: link(`run/${place}/group`, { id }) }, `group of ${near.group.length}`) : null,
    nextStep ? el("a", { href: link("pair", { one: place, first: id, other: place, second: nextStep[1] }) }, "beside") : null,
    el("label", {}, "tokens ", modes), legend), body);

  function draw() {
    const scale = scales([...turns.values()], account);
    body.replaceChildren(...shown(parts, turns, row, first.params, (turn) => (state.heat ? heat(turn, state.heat, account, scale) : null), (text, at) => whole(text, at), (turn) => continuation(first, turn)));
    body.classList.toggle("boards", Boolean(body.querySelector("article .board")) && !body.querySelector("article pre.k-seen"));
    if (parts.length < first.of) body.append(button(`${first.of - parts.length} more pieces`, () => more().catch((error) => note(error.message))));
    const reasons = state.heat === "mask" ? scale.reasons : [];
    const sums = totals(account);
    legend.replaceChildren(...reasons.map((reason, at) => el("span", { class: `r${Math.min(5, at)}` }, `${reason} `, el("b", {}, String(sums.get(reason))))));
  }
  async function more() {
    const found = await ask(`/api/runs/${place}/rollout`, { id, start: parts.length, limit: WINDOW });
    parts.push(...found.parts);
    found.turns.forEach((turn) => turns.set(turn.turn, turn));
    draw();
  }
  async function whole(node, at) {
    const found = await ask(`/api/runs/${place}/rollout`, { id, start: at, limit: 1, whole: at });
    parts[at] = found.parts[0];
    draw();
  }
  async function choose(mode) {
    state.heat = mode;
    modes.value = mode;
    keep();
    if (NEEDS_ACCOUNT.has(mode) && !account.size) {
      legend.textContent = "computing the step again, as `ale replay tokens` does: a minute or so…";
      try {
        const found = await ask(`/api/runs/${place}/account`, { id }, { method: "POST" });
        found.forEach((turn) => account.set(turn.turn, turn));
        if (!found.length) note("the learner was given no turn of this rollout");
      } catch (error) {
        legend.textContent = error.message;
        return;
      }
    }
    draw();
  }
  function move(by) {
    const all = [...body.querySelectorAll("article")];
    all[marked]?.classList.remove("mark");
    marked = Math.max(0, Math.min(all.length - 1, marked + by));
    all[marked]?.classList.add("mark");
    all[marked]?.scrollIntoView({ block: "center" });
    state.turn = all[marked]?.dataset.turn ?? "";
    keep();
  }
  draw();
  if (state.heat) choose(state.heat).catch((error) => note(error.message));
  if (state.turn) move(1 + [...body.querySelectorAll("article")].findIndex((each) => each.dataset.turn === state.turn));
  const cycle = ["", ...Object.keys(HEATS)];
  return {
    keys: {
      j: ["next turn", () => move(1)], k: ["turn before", () => move(-1)],
      n: ["next rollout", () => go(near.next)], p: ["rollout before", () => go(near.previous)],
      f: ["next failed rollout", () => go(near.next_failed)], s: ["the same task in the next step", () => go(nextStep?.[1])],
      t: ["colour tokens by something else", () => choose(cycle[(cycle.indexOf(state.heat) + 1) % cycle.length])],
      c: ["copy the command that goes on from this turn", () => copy(continuation(first, Math.max(0, marked)))],
      b: ["back to the run", () => { location.hash = link(`run/${place}`); }],
    },
  };
}

const continuation = (found, turn) => (found.goes_on ? found.goes_on.replace(/:('?)$/, `:${turn}$1`) : "");

function header({ row, parts, judged, near }, place) {
  const graded = parts.filter((part) => part.kind === "graded" || part.kind === "end").map((part) => el("div", { class: `k-${part.kind}` }, part.text));
  const steps = near.steps.length ? el("div", { class: "steps" }, el("span", { class: "dim" }, "this task in other steps "), near.steps.slice(0, 40).map(([step, id, outcome]) => el("a", { class: `chip ${outcome}`, href: link(`run/${place}/rollout`, { id }) }, String(step)))) : null;
  return el("section", { class: "about" },
    el("h1", {}, row.name, " ", el("span", { class: `badge ${row.outcome}` }, row.outcome)),
    el("p", { class: "dim" }, `${row.env} · task ${row.task} · step ${row.step} · ${row.turns} turns · ${number(row.tokens)} tokens · ${duration(row.duration_s)}`),
    el("div", { class: "why" }, el("h2", {}, "Reward ", el("b", {}, row.reward == null ? "none" : number(row.reward))), graded.length ? graded : el("div", { class: "dim" }, "The grader's words come at the end of the record."), judged ? el("pre", {}, judged) : null),
    steps);
}

// The pieces of a transcript as elements: a card for each turn, what comes before and after beside it.
export function shown(parts, turns, row, params, tokensOf, whole, command) {
  const found = [];
  let card = null;
  const env = row.env.split("@")[0];
  parts.forEach((part, at) => {
    if (part.kind === "blank") return;
    if (part.kind === "turn") {
      const turn = turns.get(part.turn);
      const reach = command?.(part.turn);
      card = el("article", { "data-turn": part.turn, id: `turn-${part.turn}`, class: turn?.fault ? "faulty" : "" },
        el("header", {}, el("span", {}, part.text.replace(/^-- /, "")), reach ? button("go on", () => copy(reach), { class: "quiet", title: reach }) : null),
        turn ? tokensOf(turn) : null);
      found.push(card);
      return;
    }
    const text = ["done", "seen", "told", "graded"].includes(part.kind);
    const picture = part.kind === "seen" ? board(env, params, part.text) : null;
    const node = picture ?? el(text ? "pre" : "div", { class: `k-${part.kind}`, dir: "auto" }, part.text);
    if (part.chars > part.text.length && whole) node.append(" ", button(`… ${number(part.chars - part.text.length)} more characters`, () => whole(node, at)));
    (part.turn == null || !card ? found : card).push?.(node) ?? card.append(node);
  });
  return found;
}
