// The message rate as the background of the slider.

import { isAborted } from "../core/api.js";
import { byId, oneAtATime, setText, svg } from "../core/dom.js";
import { asked, microseconds, rate } from "../core/text.js";

const BUCKETS = 240;

export class Rates {
  #api;
  #range;
  #onKnown;

  /** `onKnown(begins)` is called when it is known how far back the log reaches. */
  constructor(api, range, onKnown) {
    this.#api = api;
    this.#range = range;
    this.#onKnown = onKnown;
    this.load = oneAtATime(() => this.#load());
  }

  async #load() {
    const range = this.#range;
    const query = { since: asked(range.start), buckets: BUCKETS };
    if (!range.isFollowing) query.until = asked(range.end);
    const [start, end] = [range.start, range.end];
    let answer;
    try {
      answer = await this.#api.get("messages/rate", query);
    } catch (error) {
      if (!isAborted(error) && error.status) setText(byId("rates-hint"), error.message);
      return;
    }
    const begins = microseconds(answer.begins);
    const isNew = range.begins !== begins;
    this.#onKnown(Number.isNaN(begins) ? null : begins, isNew);
    this.#draw(answer.counts ?? [], start, end);
  }

  #draw(counts, start, end) {
    const highest = Math.max(1, ...counts);
    const width = 1000;
    const height = 100;
    const step = width / Math.max(1, counts.length);
    let d = `M0 ${height}`;
    counts.forEach((found, place) => {
      // The square root keeps quiet hours visible beside bursts.
      const y = height - Math.sqrt(found / highest) * (height - 6) - (found ? 2 : 0);
      d += `L${(place * step).toFixed(1)} ${y.toFixed(1)}H${((place + 1) * step).toFixed(1)}`;
    });
    const element = byId("rates");
    element.setAttribute("viewBox", `0 0 ${width} ${height}`);
    element.replaceChildren(svg("path", { d: `${d}V${height}Z` }));
    const seconds = (end - start) / 1_000_000 / Math.max(1, counts.length);
    const isEmpty = counts.every((found) => found === 0);
    setText(byId("rates-hint"), isEmpty ? "nothing was recorded in this range" : `peak ${rate(highest / seconds)} records/s`);
  }
}
