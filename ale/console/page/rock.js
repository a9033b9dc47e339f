// A ROCK server: its sandboxes, what tenants hold and wait for, pools, images. What one sandbox is stands in box.js.

import { ago, ask, el, link, number, replaceParameters } from "./dom.js";
import { ROCK, boxLink, followRock } from "./server.js";

const MOST_DRAWN = 300;
const GIB = 2 ** 30;
const TABS = [["rock", "Sandboxes"], ["rock/places", "Places and queue"], ["rock/images", "Images"]];

export function within(time) {
  if (time == null) return "–";
  const seconds = time - Date.now() / 1000;
  return seconds <= 0 ? "now" : `in ${ago(Date.now() / 1000 - seconds).replace(" ago", "")}`;
}

export const gib = (bytes) => (bytes == null ? "any" : `${number(bytes / GIB)} GiB`);
export const stateOf = (state) => el("span", { class: `state ${state === "RUNNING" ? "live" : state === "FAILED" ? "stopped" : ""}` }, state.toLowerCase());

export function table(heads, rows, empty) {
  const body = rows.length ? rows.map((cells) => el("tr", {}, cells.map((cell) => el("td", {}, cell)))) : el("tr", {}, el("td", { colspan: heads.length, class: "empty" }, empty));
  return el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, heads.map((head) => el("th", {}, head)))), el("tbody", {}, body)));
}

// The head of each page of the server, and its refresh: `draw` asks and fills, its error stands on the page.
async function live(page, crumbs, at, tools, draw) {
  crumbs([["ROCK", link("rock")], ...(at ? [[TABS[at][1]]] : [])]);
  const problem = el("p", { class: "problem", hidden: true });
  const body = el("div");
  page.append(el("div", { class: "tools" }, el("h1", {}, ROCK ?? "no ROCK server: start `ale console --rock ADDRESS`"),
    TABS.map(([path, text], place) => (place === at ? el("b", {}, text) : el("a", { href: link(path) }, text))), tools), problem, body);
  const refresh = async () => {
    try {
      await draw(body);
      problem.hidden = true;
    } catch (error) {
      problem.textContent = error.message;
      problem.hidden = false;
    }
  };
  if (ROCK == null) return { end() {}, refresh() {} };
  await refresh();
  return { end: followRock(refresh), refresh };
}

export async function showSandboxes(page, parameters, crumbs) {
  const state = { words: "", all: "", mark: "", ...parameters };
  const keep = () => replaceParameters("rock", state);
  const words = el("input", { type: "search", name: "words", value: state.words, class: "wide", placeholder: "filter by words  /", "aria-label": "filter", oninput: () => { state.words = words.value; keep(); paint(); } });
  const all = el("input", { type: "checkbox", checked: Boolean(state.all), onchange: () => { state.all = all.checked ? "1" : ""; keep(); shown?.refresh(); } });
  const told = el("span", { class: "dim" });
  let found = { rows: [], more: false }, fitting = [], place = null, shown = null;
  shown = await live(page, crumbs, 0, [words, el("label", {}, all, " deleted ones, too"), told], async (body) => {
    place = body;
    found = await ask("/api/rock/sandboxes", { everything: state.all });
    found.rows.sort((one, other) => other.created_at - one.created_at);
    paint();
  });

  function paint() {
    const wanted = state.words.toLowerCase().split(/\s+/);
    fitting = found.rows.filter((row) => { const text = said(row); return wanted.every((word) => text.includes(word)); });
    told.textContent = `${fitting.length} of ${found.rows.length}${found.more ? " read; the server has more" : ""}${fitting.length > MOST_DRAWN ? `, the first ${MOST_DRAWN} drawn` : ""}`;
    if (!fitting.some((row) => row.id === state.mark)) state.mark = fitting[0]?.id ?? "";
    const rows = fitting.slice(0, MOST_DRAWN).map((row) => [
      boxLink(row.id), stateOf(row.state), row.environment || "–", row.image || "–", row.backend, row.tenant || "–", pairs(row.labels), ago(row.created_at), row.state === "DELETED" ? "–" : within(row.ends), row.reason]);
    place?.replaceChildren(table(["id", "state", "for", "image", "backend", "tenant", "labels", "made", "ends", "reason"], rows, found.rows.length ? "No sandbox fits." : "No sandboxes that this token may see."));
    place?.querySelectorAll("tbody tr").forEach((line, at) => line.classList.toggle("mark", fitting[at]?.id === state.mark));
  }
  function move(by) {
    const drawn = fitting.slice(0, MOST_DRAWN);
    const at = Math.max(0, Math.min(drawn.length - 1, drawn.findIndex((row) => row.id === state.mark) + by));
    state.mark = drawn[at]?.id ?? "";
    paint();
    place.querySelector("tr.mark")?.scrollIntoView({ block: "nearest" });
  }
  return {
    end: shown.end,
    keys: {
      "/": ["filter", () => words.focus()], j: ["next sandbox", () => move(1)], k: ["sandbox before", () => move(-1)],
      Enter: ["open the sandbox", () => place.querySelector("tr.mark a")?.click()], x: ["deleted ones, too", () => all.click()],
    },
  };
}

const pairs = (labels) => Object.entries(labels).map(([name, value]) => `${name}=${value}`).join(" ") || "–";
const said = (row) => [row.id, row.state, row.environment, row.image, row.backend, row.tenant, pairs(row.labels), row.reason].join(" ").toLowerCase();

// A part of an answer: what it says, or why it says nothing, such as a token without the scope that it needs.
function part(title, { told, problem }, draw) {
  return el("section", {}, el("h2", {}, title), problem ? el("p", { class: "problem" }, problem) : draw(told));
}

export async function showPlaces(page, parameters, crumbs) {
  const of = (used, bound, text = number) => `${text(used ?? 0)} of ${bound == null ? "any" : text(bound)}`;
  const shown = await live(page, crumbs, 1, [], async (body) => {
    const { quotas, pools, load } = await ask("/api/rock/places");
    body.replaceChildren(
      part("What tenants hold and wait for", quotas, (rows) => table(["tenant", "sandboxes", "CPUs", "memory", "requests that wait", "weight"], rows.map((row) => [
        row.server ? el("b", {}, "the server") : row.tenant || "no tenant", of(row.used.boxes, row.limits.boxes), of(row.used.cpus, row.limits.cpus), of(row.used.memory_bytes, row.limits.memory_bytes, gib), String(row.waiting), row.server ? "" : number(row.weight)]), "")),
      part("Pools", pools, (rows) => table(["spec", "image", "in stock", "starting", "hits", "misses", "lost", "failures", "trouble"], rows.map((pool) => [
        pool.digest, pool.image || `(${pool.backend})`, `${pool.ready} of ${pool.target}`, String(pool.starting), String(pool.hits), String(pool.misses), String(pool.lost), String(pool.failures), pool.waits_for_room ? "no room" : pool.last_failure]), "No pools.")),
      part("Environments that are played", load, (now) => el("p", {}, `${number(now.envs_in_workers)} in ${now.workers} of ${now.max_workers} workers, ${number(now.envs_in_sandboxes)} in sandboxes`)));
  });
  return { end: shown.end, keys: {} };
}

export async function showImages(page, parameters, crumbs) {
  const shown = await live(page, crumbs, 2, [], async (body) => {
    const { images, envs } = await ask("/api/rock/images");
    body.replaceChildren(
      part("Images", images, (rows) => table(["name", "image", "size", "from", "made", "used", ""], rows.map((image) => [
        image.name, image.image_id, gib(image.size_bytes), image.source, ago(image.created_at), ago(image.used_at), image.evicted ? "evicted: registering it again builds it" : ""]), "No registered images.")),
      part("Environments on offer", envs, (rows) => table(["name", "version", "", "summary"], rows.map((env) => [env.name, env.version, env.sandboxed ? "in a sandbox" : "", env.summary]), "None.")));
  });
  return { end: shown.end, keys: {} };
}
