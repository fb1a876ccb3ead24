// The numbers among a topic's last values as a curve: the payload itself, or one number inside its JSON.

import { el } from "../core/dom.js";
import { plot } from "../core/plot.js";
import { counted, microseconds, visible } from "../core/text.js";
import { numbersIn } from "./json_lines.js";
import { jsonOf, numberOf, textOf } from "./payload.js";

export class ValuePlot {
  #path = "";

  constructor(onPick) {
    this.onPick = onPick;
  }

  /** `values` newest first. Null if there are fewer than two numbers to show. */
  element(values, message) {
    const text = textOf(message);
    if (numberOf(text) !== null) return this.#curve(values, (value) => numberOf(textOf(value)), "value");
    const json = jsonOf(text);
    if (json === undefined || json === null || typeof json !== "object") return null;
    const paths = [...numbersIn(json).keys()];
    if (!paths.length) return null;
    if (!paths.includes(this.#path)) this.#path = paths[0];
    const curve = this.#curve(values, (value) => numbersIn(jsonOf(textOf(value)) ?? null).get(this.#path) ?? null, this.#path);
    if (!curve || paths.length === 1) return curve;
    const choice = el("select", {}, paths.map((path) => el("option", { value: path, selected: path === this.#path }, visible(path))));
    choice.addEventListener("change", () => {
      this.#path = choice.value;
      place.replaceWith(this.element(values, message));
    });
    const place = el("div", { class: "path-plot" }, el("label", { class: "path" }, el("span", {}, "Plot of "), choice), curve);
    return place;
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
