// The numbers among a topic's last values as a curve: the payload itself, or one number inside its JSON.

import { el } from "../core/dom.js";
import { plot } from "../core/plot.js";
import { counted, microseconds, visible } from "../core/text.js";
import { numbersIn } from "./json_lines.js";
import { jsonOf, numberOf, textOf } from "./payload.js";

/** The last part of a name that stands for an instant: ts, time, sent_at, readTime. */
const TIME_NAME = /(^|[_-])(ts|t|time|timestamp|date|epoch|at)$|(Ts|Time|Timestamp|At)$/;
/** Seconds since 1970, from 2001 to 2065. */
const EPOCH_S = [1e9, 3e9];

/** Whether a number is an instant: as a curve it says nothing. */
function isInstant(path, value) {
  const isSince1970 = [1, 1e3, 1e6, 1e9].some((unit) => value >= EPOCH_S[0] * unit && value < EPOCH_S[1] * unit);
  return isSince1970 && TIME_NAME.test(path.split(".").at(-1));
}

export class ValuePlot {
  #path = "";

  /** `onChart(path)` takes the curve, or the number in JSON at that path, to the view of charts. */
  constructor(onPick, onChart) {
    this.onPick = onPick;
    this.onChart = onChart;
  }

  /** `values` newest first. Null if there are fewer than two numbers to show. */
  element(values, message) {
    const text = textOf(message);
    if (numberOf(text) !== null) return this.#withButton(this.#curve(values, (value) => numberOf(textOf(value)), "value"), "");
    const json = jsonOf(text);
    if (json === undefined || json === null || typeof json !== "object") return null;
    const numbers = numbersIn(json);
    const paths = [...numbers.keys()];
    if (!paths.length) return null;
    if (!paths.includes(this.#path)) this.#path = paths.find((path) => !isInstant(path, numbers.get(path))) ?? paths[0];
    const curve = this.#curve(values, (value) => numbersIn(jsonOf(textOf(value)) ?? null).get(this.#path) ?? null, this.#path);
    if (!curve || paths.length === 1) return this.#withButton(curve, this.#path);
    const choice = el("select", {}, paths.map((path) => el("option", { value: path, selected: path === this.#path }, visible(path))));
    choice.addEventListener("change", () => {
      this.#path = choice.value;
      place.replaceWith(this.element(values, message));
    });
    const place = el("div", { class: "path-plot" }, el("label", { class: "path" }, el("span", {}, "Plot of "), choice), this.#withButton(curve, this.#path));
    return place;
  }

  #withButton(curve, path) {
    return curve && el("div", { class: "path-plot" }, curve, el("div", { class: "buttons" }, el("button", { type: "button", class: "quiet small", onclick: () => this.onChart(path) }, "Add to the chart")));
  }

  #curve(values, numberFrom, name) {
    const points = [];
    for (const value of values) {
      const found = numberFrom(value);
      if (found !== null && Number.isFinite(found)) points.push([microseconds(value.timestamp), found]);
    }
    if (points.length < 2) return null;
    points.reverse();
    const shown = visible(name);
    return plot({ series: [{ name: shown, points }], label: `${shown}, ${counted(points.length, "message")}`, onPick: this.onPick, height: 96 });
  }
}
