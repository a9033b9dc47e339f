// Small line charts: a title, axes, lines, a band for an interval, and the numbers under the pointer.

import { el, number, svg } from "./dom.js";

const W = 340, H = 132, LEFT = 42, RIGHT = 8, TOP = 8, BOTTOM = 18;

// lines: [{name, steps, values, low?, high?, dots?}]; null values are gaps.
export function chart(title, lines, { onstep, isShare } = {}) {
  const drawn = lines.filter((line) => line.values?.some((value) => value != null));
  const box = el("figure", { class: "chart" }, el("figcaption", {}, title));
  if (!drawn.length) {
    box.append(el("p", { class: "empty" }, "nothing recorded"));
    return box;
  }
  const steps = drawn.flatMap((line) => line.steps);
  const values = drawn.flatMap((line) => [line.values, line.low ?? [], line.high ?? []].flat()).filter((value) => value != null);
  const x = scale(Math.min(...steps), Math.max(...steps), LEFT, W - RIGHT);
  const [low, high] = isShare ? [0, 1] : bounds(values);
  const y = scale(low, high, H - BOTTOM, TOP);
  const picture = svg("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": title });
  for (const tick of ticks(low, high)) {
    picture.append(
      svg("line", { class: "rule", x1: LEFT, x2: W - RIGHT, y1: y(tick), y2: y(tick) }),
      svg("text", { class: "tick", x: LEFT - 4, y: y(tick) + 3, "text-anchor": "end" }, number(tick, 3)));
  }
  for (const step of new Set([x.from, x.to])) {
    picture.append(svg("text", { class: "tick", x: x(step), y: H - 5, "text-anchor": step === x.from && x.from !== x.to ? "start" : "end" }, String(step)));
  }
  drawn.forEach((line, at) => picture.append(...shape(line, at, x, y)));
  const cross = svg("line", { class: "cross", y1: TOP, y2: H - BOTTOM, visibility: "hidden" });
  picture.append(cross);
  const legend = el("div", { class: "legend" });
  const tell = (step) => legend.replaceChildren(...drawn.map((line, at) => {
    const place = step == null ? line.values.findLastIndex((value) => value != null) : nearest(line.steps, step);
    return el("span", { class: `s${at}` }, `${line.name} `, el("b", {}, number(line.values[place])));
  }), step == null ? "" : el("span", { class: "dim" }, `step ${step}`));
  tell(null);
  const stepAt = (event) => {
    const area = picture.getBoundingClientRect();
    const wanted = x.back(((event.clientX - area.left) / area.width) * W);
    return drawn[0].steps[nearest(drawn[0].steps, wanted)];
  };
  picture.addEventListener("pointermove", (event) => {
    const step = stepAt(event);
    cross.setAttribute("visibility", "visible");
    cross.setAttribute("x1", x(step));
    cross.setAttribute("x2", x(step));
    tell(step);
  });
  picture.addEventListener("pointerleave", () => { cross.setAttribute("visibility", "hidden"); tell(null); });
  if (onstep) picture.addEventListener("click", (event) => onstep(stepAt(event)));
  box.append(picture, legend);
  return box;
}

function shape(line, at, x, y) {
  const parts = [];
  const known = line.steps.map((step, place) => place).filter((place) => line.low?.[place] != null && line.high?.[place] != null);
  if (known.length) {
    const edge = [...known.map((place) => [line.steps[place], line.high[place]]), ...known.reverse().map((place) => [line.steps[place], line.low[place]])];
    parts.push(svg("polygon", { class: `band s${at}`, points: edge.map(([step, value]) => `${x(step).toFixed(1)},${y(value).toFixed(1)}`).join(" ") }));
  }
  let path = "", pen = "M";
  line.values.forEach((value, place) => {
    if (value == null) { pen = "M"; return; }
    path += `${pen}${x(line.steps[place]).toFixed(1)} ${y(value).toFixed(1)}`;
    pen = "L";
  });
  parts.push(svg("path", { class: `line s${at}`, d: path }));
  if (line.dots || line.values.length === 1) {
    line.values.forEach((value, place) => value != null && parts.push(svg("circle", { class: `dot s${at}`, r: 2.2, cx: x(line.steps[place]), cy: y(value) })));
  }
  return parts;
}

function scale(from, to, start, end) {
  const span = to - from || 1;
  const map = (value) => start + ((value - from) / span) * (end - start);
  map.back = (place) => from + ((place - start) / (end - start)) * span;
  return Object.assign(map, { from, to });
}

function bounds(values) {
  let low = Infinity, high = -Infinity;
  for (const value of values) { low = Math.min(low, value); high = Math.max(high, value); }
  if (low === high) return [low - (Math.abs(low) || 1) / 2, high + (Math.abs(high) || 1) / 2];
  const pad = (high - low) * 0.06;
  return [low >= 0 && low - pad < 0 ? 0 : low - pad, high + pad];
}

function ticks(low, high) {
  const rough = (high - low) / 4, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough);
  const found = [];
  for (let at = Math.ceil(low / step); at * step <= high + step * 1e-9 && found.length < 8; at++) found.push(Number((at * step).toPrecision(12)));
  return found;
}

function nearest(steps, wanted) {
  let best = 0;
  steps.forEach((step, at) => { if (Math.abs(step - wanted) < Math.abs(steps[best] - wanted)) best = at; });
  return best;
}
