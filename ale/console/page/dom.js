// What every view uses: elements, requests, numbers. Text reaches the page as text nodes and attributes only.

import { KEPT, kept } from "./kept.js";

export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value != null) node.setAttribute(name, value);
  }
  node.append(...children.flat().filter((child) => child != null && child !== false));
  return node;
}

export class Refused extends Error {}

export async function ask(path, parameters = {}, options = {}) {
  if (KEPT) {
    const found = kept(path, parameters);
    if (found) return structuredClone(found);
    throw new Refused("This file does not hold it: open the run itself with `ale console`.");
  }
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== "" && value != null));
  let answer;
  try {
    answer = await fetch(`${path}?${query}`, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused("The console does not answer: `ale console` has ended, or its machine is away.");
  }
  if (answer.ok) return answer.json();
  const said = await answer.text();
  let why = said;
  try { why = JSON.parse(said).detail; } catch { /* a text */ }
  throw new Refused(typeof why === "string" ? why : JSON.stringify(why));
}

export function note(text) {
  const place = document.getElementById("note");
  place.textContent = text;
  clearTimeout(note.timer);
  note.timer = setTimeout(() => { place.textContent = ""; }, 6000);
}

export function number(value, digits = 3) {
  if (value == null) return "–";
  if (Number.isInteger(value) && Math.abs(value) < 1e7) return value.toLocaleString("en");
  const size = Math.abs(value);
  return size !== 0 && (size < 1e-3 || size >= 1e6) ? value.toExponential(1) : Number(value.toPrecision(digits)).toString();
}

export function duration(seconds) {
  if (seconds == null) return "–";
  if (seconds < 100) return `${number(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  return minutes < 100 ? `${minutes} min` : `${(minutes / 60).toFixed(1)} h`;
}

export function ago(time) {
  return time == null ? "–" : `${duration(Math.max(0, Date.now() / 1000 - time))} ago`;
}

export function button(text, act, attributes = {}) {
  return el("button", { type: "button", onclick: act, ...attributes }, text);
}

export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    note("copied");
  } catch {
    note(text);
  }
}

// Addresses: #/run/NAME?task=x. Every state of a view that is worth a link stands in them.
export function link(path, parameters = {}) {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== "" && value != null));
  return `#/${path}${query.size ? `?${query}` : ""}`;
}

export function replaceParameters(path, parameters) {
  history.replaceState(null, "", link(path, parameters));
}

// A letter is a key only where nothing is being typed.
export function isTyping(event) {
  return event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
}
