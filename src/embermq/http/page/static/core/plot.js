// Small plots over time, drawn as SVG by our own code.

import { el, setText, svg } from "./dom.js";
import { clockTime, minuteTime, shortDay } from "./text.js";

/** As many digits as a number can have: two ends of an axis that differ must not look the same. */
const MINUTE_US = 60_000_000;
const HOUR_US = 60 * MINUTE_US;
const NUMBER = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 15 });

export function shownNumber(value) {
  return NUMBER.format(value);
}

/**
 * A plot. `series`: [{name, points: [[us, value], ...] in order of time, className}]; `format` shows a value;
 * `label` names it for a screen reader; `range`: the ends of its axis; `onPick(us)` makes points clickable; `isStepped`: a value holds until the next.
 */
export function plot({ series, height = 88, format = shownNumber, label, onPick = null, isFromZero = false, isStepped = false, range = null }) {
  const width = 640;
  const all = series.flatMap((one) => one.points);
  if (!all.length) return el("p", { class: "hint" }, "no values yet");
  const times = all.map(([us]) => us);
  const values = all.map(([, value]) => value);
  const [begin, end] = range ?? [least(times), Math.max(greatest(times), least(times) + 1)];
  let low = isFromZero ? Math.min(0, least(values)) : least(values);
  let high = greatest(values);
  if (high === low) {
    high += Math.abs(high) * 0.1 || 1;
    if (!isFromZero) low -= Math.abs(low) * 0.1 || 1;
  }
  const x = (us) => ((us - begin) / (end - begin)) * width;
  const y = (value) => 4 + (1 - (value - low) / (high - low)) * (height - 8);
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", "aria-hidden": "true" });
  for (const one of series) draw(drawing, one, x, y, height, isStepped);
  const cursor = svg("line", { class: "cursor", y1: 0, y2: height, x1: -9, x2: -9 });
  drawing.append(cursor);
  const read = el("span", { class: "read", "aria-hidden": "true" });
  const frame = el(
    "div",
    { class: `plot ${onPick ? "pickable" : ""}`, role: "img", "aria-label": described(label, series, format) },
    scale(format(greatest(values)), format(isFromZero ? low : least(values))),
    drawing,
    el("div", { class: "times" }, axisTimes(begin, end).map((us) => el("span", {}, timeText(us, end - begin)))),
    read,
  );
  drawing.style.height = `${height}px`;
  follow(frame, drawing, { series, begin, end, x, cursor, read, format, onPick });
  return frame;
}

function draw(drawing, one, x, y, height, isStepped) {
  if (!one.points.length) return;
  const commands = one.points.map(([us, value], place) => {
    if (place === 0) return `M${x(us).toFixed(1)} ${y(value).toFixed(1)}`;
    return isStepped ? `H${x(us).toFixed(1)}V${y(value).toFixed(1)}` : `L${x(us).toFixed(1)} ${y(value).toFixed(1)}`;
  });
  const line = commands.join("");
  const [first, last] = [one.points[0][0], one.points.at(-1)[0]];
  if (one.points.length === 1) { // a line without a length is drawn as its round end
    drawing.append(svg("path", { class: `dot ${one.className ?? ""}`, d: `${line}h0.01`, "vector-effect": "non-scaling-stroke" }));
    return;
  }
  drawing.append(
    svg("path", { class: `area ${one.className ?? ""}`, d: `${line}L${x(last).toFixed(1)} ${height}L${x(first).toFixed(1)} ${height}Z` }),
    svg("path", { class: `curve ${one.className ?? ""}`, d: line, "vector-effect": "non-scaling-stroke" }),
  );
}

function follow(frame, drawing, { series, begin, end, x, cursor, read, format, onPick }) {
  let picked = null;
  frame.addEventListener("pointermove", (event) => {
    const box = drawing.getBoundingClientRect();
    const us = begin + ((event.clientX - box.left) / box.width) * (end - begin);
    const parts = [];
    for (const one of series) {
      const point = nearest(one.points, us);
      if (!point) continue;
      picked = point[0];
      parts.push(series.length > 1 ? `${one.name} ${format(point[1])}` : format(point[1]));
    }
    if (picked === null) return;
    cursor.setAttribute("x1", x(picked));
    cursor.setAttribute("x2", x(picked));
    setText(read, `${parts.join(" · ")} at ${clockTime(picked)}`);
  });
  frame.addEventListener("pointerleave", () => {
    cursor.setAttribute("x1", -9);
    cursor.setAttribute("x2", -9);
    setText(read, "");
  });
  if (onPick) frame.addEventListener("click", () => picked !== null && onPick(picked));
}

/** The highest and the lowest value, beside the drawing; one of them if they are the same. */
function scale(high, low) {
  return el("div", { class: "scale" }, el("span", { class: "high" }, high), high !== low && el("span", { class: "low" }, low));
}

function axisTimes(begin, end) {
  return end - begin > 1 ? [begin, (begin + end) / 2, end] : [begin];
}

/** An instant on the axis of time, as exact as the axis is long. */
function timeText(us, length) {
  if (length > 20 * HOUR_US) return `${shortDay(us)} ${minuteTime(us)}`;
  return length > 10 * MINUTE_US ? minuteTime(us) : clockTime(us);
}

function nearest(points, us) {
  let low = 0;
  let high = points.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (points[middle][0] < us) low = middle + 1;
    else high = middle;
  }
  const before = points[low - 1];
  return before && Math.abs(before[0] - us) < Math.abs(points[low][0] - us) ? before : points[low];
}

function described(label, series, format) {
  const parts = series.filter((one) => one.points.length).map((one) => {
    const values = one.points.map(([, value]) => value);
    const name = series.length > 1 ? `${one.name}: ` : "";
    return `${name}${values.length} values from ${format(least(values))} to ${format(greatest(values))}, last ${format(values.at(-1))}`;
  });
  return `${label}: ${parts.join("; ")}`;
}

function least(values) {
  return values.reduce((found, value) => (value < found ? value : found), Infinity);
}

function greatest(values) {
  return values.reduce((found, value) => (value > found ? value : found), -Infinity);
}
