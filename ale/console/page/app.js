// The address says what is shown. A view is a function that fills the page and returns how it ends and which keys it has.

import { button, el, isTyping, link, note } from "./dom.js";
import { showRuns } from "./runs.js";
import { showRun } from "./run.js";
import { showRollout } from "./rollout.js";
import { showImages, showPlaces, showSandboxes } from "./rock.js";
import { showSandbox } from "./box.js";
import { ROCK } from "./server.js";
import { showGroup, showPair, showRunsBeside } from "./compare.js";

const VIEWS = [
  [/^$/, showRuns],
  [/^run\/([\w.+=~-]+)$/, showRun],
  [/^run\/([\w.+=~-]+)\/rollout$/, showRollout],
  [/^run\/([\w.+=~-]+)\/group$/, showGroup],
  [/^pair$/, showPair],
  [/^compare$/, showRunsBeside],
  [/^rock$/, showSandboxes],
  [/^rock\/box$/, showSandbox],
  [/^rock\/places$/, showPlaces],
  [/^rock\/images$/, showImages],
];
const KEYS = { g: ["the list of runs", () => { location.hash = "#/"; }], d: ["dark or light", changeTheme], "?": ["these keys", showKeys] };

let view = { end() {}, keys: {} };
let shown = 0;

async function show() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const parameters = Object.fromEntries(new URLSearchParams(query));
  const main = document.getElementById("main");
  view.end?.();
  view = { keys: {} };
  const own = ++shown;
  const page = el("div", { class: "page" });
  main.replaceChildren(page);
  crumbs([]);
  const [pattern, draw] = VIEWS.find(([each]) => each.test(path)) ?? [/^/, lost];
  try {
    const found = await draw(page, parameters, crumbs, ...(path.match(pattern)?.slice(1) ?? []));
    if (own === shown) view = { keys: {}, ...found };
    else found?.end?.();
  } catch (error) {
    if (own === shown) page.replaceChildren(el("p", { class: "problem" }, error.message));
  }
}

function lost(page) {
  page.append(el("h1", {}, "No such page"), el("p", { class: "problem" }, "The address leads nowhere. ", el("a", { href: "#/" }, "All runs")));
}

function crumbs(steps) {
  document.title = ["ale console", ...steps.map(([text]) => text)].reverse().join(" · ");
  const links = steps.map(([text, href]) => [el("span", { class: "sep" }, "/"), href ? el("a", { href }, text) : el("b", {}, text)]);
  document.getElementById("bar").replaceChildren(
    el("nav", {}, el("a", { href: "#/", class: "home" }, "ale console"), links.flat()),
    ROCK == null ? "" : el("a", { href: "#/rock" }, "ROCK"),
    button("?", showKeys, { title: "keys", class: "quiet" }),
    button("◐", changeTheme, { title: "dark or light (d)", class: "quiet" }),
  );
}

function changeTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = document.documentElement.dataset.theme ?? (dark ? "dark" : "light");
  setTheme(now === "dark" ? "light" : "dark");
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  try { localStorage.setItem("theme", theme); } catch { /* a browser that keeps nothing */ }
}

function showKeys() {
  if (document.querySelector("dialog")) return;
  const rows = Object.entries({ ...view.keys, ...KEYS }).map(([key, [text]]) => el("tr", {}, el("td", {}, el("kbd", {}, key)), el("td", {}, text)));
  const box = el("dialog", { onclose: () => box.remove(), onclick: () => box.close() }, el("h2", {}, "Keys"), el("table", {}, rows));
  document.body.append(box);
  box.showModal();
}

addEventListener("keydown", (event) => {
  if (event.key === "Escape" && event.target.blur) event.target.blur();
  if (isTyping(event) || document.querySelector("dialog")) return;
  const found = view.keys[event.key] ?? KEYS[event.key];
  if (!found) return;
  event.preventDefault();
  found[1]();
});
addEventListener("hashchange", show);
addEventListener("unhandledrejection", (event) => {
  if (event.reason?.name !== "AbortError") note(event.reason?.message ?? String(event.reason));
});
try {
  const kept = localStorage.getItem("theme");
  if (kept) setTheme(kept === "dark" ? "dark" : "light");
} catch { /* a browser that keeps nothing */ }
show();
export { link };
