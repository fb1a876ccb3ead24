// The changes of the selected topic within the slider's range: ticks below the rate, and where the arrow keys lead.

import { isAborted } from "../core/api.js";
import { byId, el, setText } from "../core/dom.js";
import { oneAtATime } from "../core/latest_run.js";
import { state } from "../core/state.js";
import { asked, count, microseconds } from "../core/text.js";

const MARKS_MAX = 400;

export class Marks {
  #api;
  #range;
  #instants = [];
  #nearby = [];
  /** Changes that were just seen live: drawn, but the instant that the log has is another one, so no key leads to them. */
  #justSeen = [];
  #refused = null;
  /** The instant from which on all messages have a mark; null: all of the range. */
  #since = null;

  constructor(api, range) {
    this.#api = api;
    this.#range = range;
    this.load = oneAtATime((signal) => this.#load(signal));
  }

  async #load(signal) {
    const { topic } = state;
    if (topic === null || topic === this.#refused) {
      this.#instants = this.#nearby = this.#justSeen = [];
      this.#since = null;
      this.draw();
      return;
    }
    const query = { topic, since: asked(this.#range.start), limit: MARKS_MAX, payload_bytes: 0 };
    if (!this.#range.isFollowing) query.until = asked(this.#range.end);
    try {
      const page = await this.#api.get("topic/values", query, signal);
      if (topic !== state.topic) return;
      this.#instants = page.items.map((item) => microseconds(item.timestamp)).reverse();
      this.#since = page.next && this.#instants.length ? this.#instants[0] : null;
      this.#justSeen = [];
    } catch (error) {
      if (isAborted(error)) return;
      this.#instants = [];
      this.#since = null;
      if (error.status === 403) this.#refused = topic; // the pane says so; asking again would not help
    }
    this.draw();
  }

  /** Changes that the topic's pane knows, the newest first; they may lie outside of the range. */
  setNearby(instants) {
    this.#nearby = instants;
    if (!this.#justSeen.length) return;
    this.#justSeen = [];
    const last = this.#instants.at(-1) ?? -Infinity;
    this.#instants.push(...instants.filter((one) => one > last).reverse());
    const tooMany = this.#instants.length - MARKS_MAX;
    if (tooMany > 0) {
      this.#instants.splice(0, tooMany);
      this.#since = this.#instants[0];
    }
    this.draw();
  }

  /** A change that was just seen live. */
  add(us) {
    this.#justSeen.push(us);
    if (this.#justSeen.length > MARKS_MAX) this.#justSeen.shift();
    this.draw();
  }

  previous(us) {
    return [...this.#instants, ...this.#nearby].filter((one) => one < us).reduce((a, b) => Math.max(a, b), -Infinity);
  }

  next(us) {
    return [...this.#instants, ...this.#nearby].filter((one) => one > us).reduce((a, b) => Math.min(a, b), Infinity);
  }

  draw() {
    const gap = this.#range.length / Math.max(60, byId("marks").clientWidth / 4);
    const shown = [];
    for (const us of [...this.#instants, ...this.#justSeen]) {
      if (this.#range.holds(us) && !(us - shown.at(-1) < gap)) shown.push(us);
    }
    byId("marks").replaceChildren(
      ...shown.map((us) => {
        const mark = el("i");
        mark.style.left = `${this.#range.fraction(us) * 100}%`;
        return mark;
      }),
      ...this.#withoutMarks(),
    );
  }

  /** The part of the range whose messages have no marks, because there are too many: drawn as such, and said. */
  #withoutMarks() {
    const part = this.#since === null ? 0 : Math.min(1, this.#range.fraction(this.#since));
    const hint = byId("marks-hint");
    hint.hidden = part <= 0;
    setText(hint, part > 0 ? `marks: the newest ${count(this.#instants.length)} messages; zoom in for others` : "");
    if (part <= 0) return [];
    const gap = el("span", { class: "without-marks" });
    gap.style.width = `${part * 100}%`;
    return [gap];
  }
}
