// Several topics, or numbers in their JSON, in one chart, with zoom. The address keeps what is shown.

import { isAborted } from "../core/api.js";
import { nowUs } from "../core/clock.js";
import { el, show } from "../core/dom.js";
import { oneAtATime } from "../core/latest_run.js";
import { plot, shownNumber } from "../core/plot.js";
import { change, onChange, state } from "../core/state.js";
import { asked, counted, instant, microseconds, middleCut, visible } from "../core/text.js";
import { numbersIn } from "../topic/json_lines.js";
import { jsonOf, numberOf, textOf } from "../topic/payload.js";

const SERIES_MAX = 5;
const PAGES_MAX = 4;
const PAGE_ITEMS = 1000;
const VALUE_BYTES = 4096;
const MINUTE_US = 60_000_000;
const RANGES = [["15 min", 15], ["1 h", 60], ["6 h", 360], ["1 d", 1440], ["7 d", 10080]];

/** The chart in the address: [[topic, path], ...]; an empty path is the payload itself. */
export function chartOf(text) {
  try {
    const found = JSON.parse(text || "[]");
    const isPair = (one) => Array.isArray(one) && one.length === 2 && one.every((part) => typeof part === "string");
    return Array.isArray(found) ? found.filter(isPair).slice(0, SERIES_MAX) : [];
  } catch {
    return [];
  }
}

/** The chart with one more series, the last ones of too many. */
export function withSeries(text, topic, path) {
  const others = chartOf(text).filter((one) => one[0] !== topic || one[1] !== path);
  return JSON.stringify([...others, [topic, path]].slice(-SERIES_MAX));
}

export class ChartView {
  #api;
  #isShown = false;
  #series = [];
  #range = [0, 0];
  #minutes = 60;

  constructor(api, element) {
    this.#api = api;
    const topic = el("input", { name: "topic", required: true, spellcheck: "false", autocomplete: "off", placeholder: "plant/7/temperature", "aria-label": "Topic" });
    const path = el("input", { name: "path", spellcheck: "false", autocomplete: "off", placeholder: "field, such as motor.current", "aria-label": "Field of JSON" });
    const add = (event) => {
      event.preventDefault();
      change({ chart: withSeries(state.chart, topic.value, path.value) }, { isStep: true });
      topic.value = path.value = "";
    };
    this.isScaled = el("input", { type: "checkbox" });
    this.isScaled.addEventListener("change", () => this.#draw());
    this.chips = el("ul", { class: "chips" });
    this.summary = el("p", { class: "explanation", role: "status" });
    this.place = el("div", { class: "chart-place" });
    const ranges = RANGES.map(([name, minutes]) => el("button", { type: "button", class: "quiet small", onclick: () => this.#latest(minutes) }, name));
    show(element, el("div", { class: "listing-head" }, el("h2", {}, "Chart")),
      el("form", { class: "line-form", onsubmit: add }, topic, path, el("button", { type: "submit", class: "primary" }, "Add")), this.chips,
      el("div", { class: "buttons chart-tools" }, ranges, el("button", { type: "button", "aria-label": "Zoom out", onclick: () => this.#zoom(2) }, "−"), el("button", { type: "button", "aria-label": "Zoom in", onclick: () => this.#zoom(0.5) }, "+"),
        el("label", { class: "check" }, this.isScaled, " each on a scale of its own")),
      this.summary, this.place);
    this.load = oneAtATime((signal) => this.#load(signal));
    onChange((changed) => (changed.has("chart") || changed.has("at")) && this.#isShown && this.#latest(this.#minutes));
  }

  setShown(isShown) {
    const begins = isShown && !this.#isShown;
    this.#isShown = isShown;
    if (begins) this.#latest(this.#minutes);
  }

  #latest(minutes) {
    this.#minutes = minutes;
    const end = state.at ?? nowUs();
    this.#range = [end - minutes * MINUTE_US, end];
    this.load.instead();
  }

  #zoom(factor) {
    const [begin, end] = this.#range;
    const middle = (begin + end) / 2;
    const half = Math.max(1_000_000, ((end - begin) / 2) * factor);
    this.#show(middle - half, middle + half);
  }

  #show(begin, end) {
    this.#range = [Math.max(0, begin), Math.min(end, nowUs())];
    this.load.instead();
  }

  async #load(signal) {
    const wanted = chartOf(state.chart);
    show(this.chips, wanted.map(([topic, path], place) => chip(topic, path, place)));
    if (!wanted.length) {
      this.#series = [];
      show(this.summary, "Add up to five topics, or fields of their JSON. The pane of a topic has a button for it, too.");
      show(this.place);
      return;
    }
    show(this.summary, "Loading …");
    try {
      this.#series = await Promise.all(wanted.map(([topic, path]) => this.#values(topic, path, signal)));
      this.#draw();
    } catch (error) {
      if (!isAborted(error)) show(this.summary, el("span", { class: "failure" }, error.message));
    }
  }

  async #values(topic, path, signal) {
    const [since, until] = this.#range.map(asked);
    const points = [];
    let cursor = null;
    for (let page = 0; page < PAGES_MAX; page += 1) {
      const found = await this.#api.get("topic/values", { topic, since, until, limit: PAGE_ITEMS, payload_bytes: VALUE_BYTES, cursor }, signal);
      for (const value of found.items) {
        const text = textOf(value);
        const number = path ? numbersIn(jsonOf(text) ?? null).get(path) : numberOf(text);
        if (number !== null && number !== undefined && Number.isFinite(number)) points.push([microseconds(value.timestamp), number]);
      }
      cursor = found.next ?? null;
      if (cursor === null) break;
    }
    points.reverse();
    return { name: nameOf(topic, path), points, isCut: cursor !== null };
  }

  #draw() {
    const shown = this.#series.map((one, place) => ({ ...one, className: `series-${place}`, points: this.isScaled.checked ? scaled(one.points) : one.points })).filter((one) => one.points.length);
    const all = this.#series.reduce((sum, one) => sum + one.points.length, 0);
    const [begin, end] = this.#range;
    const cut = this.#series.some((one) => one.isCut) ? " Only the newest of each topic: zoom in for the others." : "";
    show(this.summary, `${counted(all, "value")} from ${instant(begin, nowUs())} to ${instant(end, nowUs())}.${cut} Drag over the chart to zoom.`);
    if (!shown.length) {
      show(this.place, el("p", { class: "hint" }, "No numbers in this range."));
      return;
    }
    const format = this.isScaled.checked ? (value) => `${Math.round(value * 100)} %` : shownNumber;
    const drawn = plot({ series: shown, label: "Chart", height: 320, format, range: this.#range });
    zoomByDrag(drawn, this.#range, (from, to) => this.#show(from, to));
    show(this.place, drawn);
  }
}

function nameOf(topic, path) {
  return visible(path ? `${topic}: ${path}` : topic);
}

function chip(topic, path, place) {
  const remove = () => change({ chart: JSON.stringify(chartOf(state.chart).filter((_, at) => at !== place)) }, { isStep: true });
  return el("li", {}, el("i", { class: `swatch series-${place}` }), el("bdi", {}, middleCut(nameOf(topic, path), 60)), el("button", { type: "button", class: "quiet small", "aria-label": `Remove ${nameOf(topic, path)}`, onclick: remove }, "×"));
}

/** Between 0 and 1, from the least to the greatest value. */
function scaled(points) {
  const values = points.map(([, value]) => value);
  const low = values.reduce((a, b) => Math.min(a, b), Infinity);
  const length = values.reduce((a, b) => Math.max(a, b), -Infinity) - low;
  return points.map(([us, value]) => [us, length ? (value - low) / length : 0.5]);
}

function zoomByDrag(frame, [begin, end], onZoom) {
  const drawing = frame.querySelector("svg");
  let from = null;
  const at = (event) => {
    const box = drawing.getBoundingClientRect();
    return begin + Math.min(1, Math.max(0, (event.clientX - box.left) / box.width)) * (end - begin);
  };
  drawing.addEventListener("pointerdown", (event) => {
    from = at(event);
    drawing.setPointerCapture(event.pointerId);
  });
  drawing.addEventListener("pointerup", (event) => {
    const to = at(event);
    if (from !== null && Math.abs(to - from) > (end - begin) / 100) onZoom(Math.min(from, to), Math.max(from, to));
    from = null;
  });
}
