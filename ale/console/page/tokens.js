// A turn's tokens as a heat map: one cell a token, coloured by what is asked for.

import { button, el, number } from "./dom.js";

export const HEATS = {
  logprob: "log-probability", version: "version", advantage: "advantage", gap: "gap of learner and sampler", mask: "mask and reason",
};
export const NEEDS_ACCOUNT = new Set(["advantage", "gap", "mask"]);
const REASONS = 6;
const MOST = 4000;

// What the colours of a rollout are scaled by: `account` is that of all its turns, by turn.
export function scales(turns, account) {
  const all = [...account.values()];
  const most = (values) => values.reduce((high, value) => Math.max(high, Math.abs(value ?? 0)), 0);
  const reasons = [...new Set(all.flatMap((turn) => turn.fates))].sort((one, other) => (other === "trained") - (one === "trained") || (one < other ? -1 : 1));
  return {
    advantage: most(all.map((turn) => turn.advantage)) || 1,
    gap: most(all.flatMap(gaps)) || 1,
    oldest: turns.reduce((low, turn) => turn.versions.reduce((least, [version]) => Math.min(least, version), low), Infinity),
    reasons,
  };
}

const gaps = (turn) => turn.learner_logprobs.map((value, at) => (value == null || turn.sampled_logprobs[at] == null ? null : value - turn.sampled_logprobs[at]));

export function heat(turn, mode, account, scale) {
  const own = account.get(turn.turn);
  const versions = turn.versions.flatMap(([version, count]) => Array(count).fill(version));
  const apart = own ? gaps(own) : [];
  const cell = (id, at) => {
    const facts = [`token ${at}: id ${id}`, `log-probability ${number(turn.logprobs[at])}`, `version ${versions[at]}`];
    if (own) facts.push(own.fates[at], `advantage ${number(own.advantage)}`, `gap ${number(apart[at] ?? null)}`);
    const node = el("span", { class: "token", title: facts.join("\n") }, own?.texts[at] || String(id));
    const [colour, strength] = paint(mode, { logprob: turn.logprobs[at], version: versions[at], advantage: own?.advantage, gap: apart[at], fate: own?.fates[at] }, scale);
    if (colour) node.style.background = `color-mix(in srgb, var(${colour}) ${Math.round(strength * 45)}%, transparent)`;
    return node;
  };
  const cells = el("div", { class: "tokens", tabindex: 0 });
  const more = (from) => {
    cells.append(...turn.ids.slice(from, from + MOST).map((id, at) => cell(id, from + at)));
    const left = turn.ids.length - from - MOST;
    if (left > 0) cells.append(button(`${number(left)} more tokens`, (event) => { event.target.remove(); more(from + MOST); }));
  };
  more(0);
  return cells;
}

function paint(mode, { logprob, version, advantage, gap, fate }, scale) {
  if (mode === "logprob" && logprob != null) return ["--heat", Math.min(1, -logprob / 4)];
  if (mode === "version") return ["--heat", Math.min(1, 0.12 + (version - scale.oldest) * 0.2)];
  if (mode === "advantage" && advantage != null) return [advantage < 0 ? "--bad" : "--good", Math.abs(advantage) / scale.advantage];
  if (mode === "gap" && gap != null) return [gap < 0 ? "--bad" : "--good", Math.abs(gap) / scale.gap];
  if (mode === "mask" && fate) return [`--r${Math.min(REASONS - 1, scale.reasons.indexOf(fate))}`, 1];
  return [null, 0];
}

// How many tokens came to what: the same sums as the last line of `ale replay tokens`.
export function totals(account) {
  const found = new Map();
  for (const turn of account.values()) for (const fate of turn.fates) found.set(fate, (found.get(fate) ?? 0) + 1);
  return found;
}
