// Which ROCK server the console shows (`ale console --rock`), null where it shows none, and the way to a sandbox of it.

import { ask, el, link } from "./dom.js";
import { KEPT } from "./kept.js";

export const ROCK = KEPT ? null : (await ask("/api/rock").catch(() => ({ place: null }))).place;

// A sandbox's id, as a link where there is a page of it.
export function boxLink(id) {
  return ROCK != null && /^sb-[0-9a-f]{16}$/.test(id) ? el("a", { href: link("rock/box", { id }) }, id) : id;
}

// Calls back with each change at the server, while the page is open.
export function followRock(changed) {
  const events = new EventSource("/api/rock/events");
  let first = true;
  events.onmessage = () => { if (first) first = false; else changed(); };
  return () => events.close();
}
