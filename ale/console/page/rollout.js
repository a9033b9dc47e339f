// One rollout: its turns, its tokens, why it has its reward, and what stands around it.

import { ask, button, copy, el, link, note, number, duration, replaceParameters } from "./dom.js";
import { drawn, image, stage } from "./pictures.js";
import { KEPT } from "./kept.js";
import { ROCK, boxLink } from "./server.js";
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
  const pictures = stage();
  let marked = -1;

  page.append(header(first, place), el("div", { class: "tools sticky" },
    button("← previous", () => go(near.previous), { title: "p" }), button("next →", () => go(near.next), { title: "n" }),
    button("next failed", () => go(near.next_failed), { title: "f" }),
    button(nextStep ? `same task, step ${nextStep[0]}` : "task in no other step", () => go(nextStep?.[1]), { title: "s", disabled: !nextStep }),
    near.group.length > 1 ? el("a", { href: link(`run/${place}/group`, { id }) }, `group of ${near.group.length}`) : null,
    nextStep ? el("a", { href: link("pair", { one: place, first: id, other: place, second: nextStep[1] }) }, "beside") : null,
    el("label", {}, "tokens ", modes), legend), pictures.node, body);

  function draw() {
    const scale = scales([...turns.values()], account);
    body.replaceChildren(...shown(parts, turns, place, first, (turn) => (state.heat ? heat(turn, state.heat, account, scale) : null), (text, at) => whole(text, at), (turn) => continuation(first, turn)));
    pictures.set([...body.querySelectorAll(".board, img.shown")].map((node) => frame(node)));
    body.classList.toggle("boards", Boolean(body.querySelector("article .board")) && !body.querySelector("article pre.k-seen, article img"));
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
  function mark(at, scrolls) {
    const all = [...body.querySelectorAll("article")];
    all[marked]?.classList.remove("mark");
    marked = Math.max(-1, Math.min(all.length - 1, at));
    all[marked]?.classList.add("mark");
    if (scrolls) all[marked]?.scrollIntoView({ block: "center" });
    state.turn = all[marked]?.dataset.turn ?? "";
    keep();
  }
  function move(by) {
    mark(Math.max(0, marked + by), true);
    pictures.turn(state.turn);
  }
  function step(by) {
    const turn = pictures.move(by);
    mark([...body.querySelectorAll("article")].findIndex((each) => each.dataset.turn === turn), false);
  }
  draw();
  if (state.heat) choose(state.heat).catch((error) => note(error.message));
  if (state.turn) move(1 + [...body.querySelectorAll("article")].findIndex((each) => each.dataset.turn === state.turn));
  const cycle = ["", ...Object.keys(HEATS)];
  return {
    keys: {
      ArrowRight: ["the picture of the next turn, in its place", () => step(1)], ArrowLeft: ["the one before", () => step(-1)],
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

function header({ row, parts, judged, near, picture, sandbox }, place) {
  const graded = parts.filter((part) => part.kind === "graded" || part.kind === "end").map((part) => drawn(picture, part) ?? el("div", { class: `k-${part.kind}` }, part.text));
  const steps = near.steps.length ? el("div", { class: "steps" }, el("span", { class: "dim" }, "this task in other steps "), near.steps.slice(0, 40).map(([step, id, outcome]) => el("a", { class: `chip ${outcome}`, href: link(`run/${place}/rollout`, { id }) }, String(step)))) : null;
  return el("section", { class: "about" },
    el("h1", {}, row.name, " ", el("span", { class: `badge ${row.outcome}` }, row.outcome)),
    el("p", { class: "dim" }, `${row.env} · task ${row.task} · step ${row.step} · ${row.turns} turns · ${number(row.tokens)} tokens · ${duration(row.duration_s)}`),
    sandbox && ROCK != null ? el("p", { class: "dim" }, "in sandbox ", boxLink(sandbox)) : null,
    el("div", { class: "why", tabindex: 0 }, el("h2", {}, "Reward ", el("b", {}, row.reward == null ? "none" : number(row.reward))), graded.length ? graded : el("div", { class: "dim" }, "The grader's words come at the end of the record."), judged ? el("pre", {}, judged) : null),
    steps);
}

// A picture, and what is said of it where it stands alone.
function frame(node) {
  const card = node.closest("article");
  return { turn: card?.dataset.turn ?? "", node, told: card ? `turn ${card.dataset.turn}: ${(card.querySelector(".k-done")?.textContent ?? "").slice(0, 80)}` : "at the start" };
}

// The pieces of a transcript as elements: a card for each turn, what comes before and after beside it.
export function shown(parts, turns, place, { row, picture }, tokensOf, whole, command) {
  const found = [];
  let card = null;
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
    const node = drawn(picture, part) ?? el(text ? "pre" : "div", { dir: "auto" }, part.text);
    node.classList.add(`k-${part.kind}`);
    if (part.chars > part.text.length && whole) node.append(" ", button(`… ${number(part.chars - part.text.length)} more characters`, () => whole(node, at)));
    const both = [node, part.file == null || KEPT ? null : image(`/api/runs/${place}/image?${new URLSearchParams({ id: row.id, file: part.file })}`, part.text.trim())].filter(Boolean);
    if (part.turn == null || !card) found.push(...both);
    else card.append(...both);
  });
  return found;
}
