// The message rate as the background of the slider.

import { isAborted } from "../core/api.js";
import { byId, setText, svg } from "../core/dom.js";
import { oneAtATime } from "../core/latest_run.js";
import { asked, microseconds, rate } from "../core/text.js";

const BUCKETS = 240;
const WIDTH = 1000;
const HEIGHT = 100;

export class Rates {
  #api;
  #range;
  #onKnown;
  #found = null;
  #isRefused = false;

  /** `onKnown(begins)` is called when it is known how far back the log reaches. */
  constructor(api, range, onKnown) {
    this.#api = api;
    this.#range = range;
    this.#onKnown = onKnown;
    this.load = oneAtATime((signal) => this.#load(signal));
  }

  async #load(signal) {
    if (this.#isRefused) return;
    const range = this.#range;
    const query = { buckets: BUCKETS };
    if (range.begins !== null) query.since = asked(range.start); // at first all of the log, to know where it begins
    if (!range.isFollowing) query.until = asked(range.end);
    let answer;
    try {
      answer = await this.#api.get("messages/rate", query, signal);
    } catch (error) {
      if (!isAborted(error) && error.status) setText(byId("rates-hint"), error.message);
      if (error.status === 403) await this.#refused();
      return;
    }
    const start = microseconds(answer.since);
    const bucket = (microseconds(answer.until) - start) / answer.counts.length;
    this.#found = { counts: answer.counts, start, bucket, trouble: answer.archive_error };
    this.#onKnown(answer.begins ? microseconds(answer.begins) : null);
    this.draw();
  }

  /** The rate is of all topics, and this user may see some: the slider still needs to know how far back it reaches. */
  async #refused() {
    this.#isRefused = true;
    setText(byId("rates-hint"), "rates are shown to users who may see everything");
    const { begins } = await this.#api.get("tree", { limit: 1 }).catch(() => ({}));
    this.#onKnown(begins ? microseconds(begins) : null);
  }

  /** What is loaded, where it belongs in the range of now: it may be older than the last zoom. */
  draw() {
    if (!this.#found) return;
    const { counts, start, bucket, trouble } = this.#found;
    const highest = counts.reduce((most, found) => Math.max(most, found), 1);
    const x = (place) => (this.#range.fraction(start + place * bucket) * WIDTH).toFixed(1);
    let d = `M${x(0)} ${HEIGHT}`;
    counts.forEach((found, place) => {
      // The square root keeps quiet hours visible beside bursts.
      const y = HEIGHT - Math.sqrt(found / highest) * (HEIGHT - 6) - (found ? 2 : 0);
      d += `L${x(place)} ${y.toFixed(1)}H${x(place + 1)}`;
    });
    const element = byId("rates");
    element.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
    element.replaceChildren(svg("path", { d: `${d}V${HEIGHT}Z` }));
    const isEmpty = counts.every((found) => found === 0);
    setText(byId("rates-hint"), trouble ? trouble : isEmpty ? "nothing was recorded in this range" : `peak ${rate(highest / (bucket / 1_000_000))} records/s`);
  }
}
