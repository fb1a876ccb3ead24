// The part of time that the slider covers, within what the log reaches.

import { nowUs } from "../core/clock.js";
import { clockTime, minuteTime, shortDay } from "../core/text.js";

const SECOND = 1_000_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const LENGTH_MIN = 5 * SECOND;
const STEPS = [1, 2, 5, 10, 15, 30].map((n) => n * SECOND)
  .concat([1, 2, 5, 10, 15, 30].map((n) => n * MINUTE), [1, 2, 3, 6, 12].map((n) => n * HOUR), [1, 2, 7, 14].map((n) => n * DAY));

/** What the buttons choose; null is all of it. */
export const PRESETS = [["15 min", 15 * MINUTE], ["1 h", HOUR], ["1 d", DAY], ["All", null]];

export class Range {
  /** The instant at which the log begins; null until that is known. */
  begins = null;
  start = nowUs() - 15 * MINUTE;
  #end = null;

  /** Without an end of its own the range follows the clock. */
  get end() {
    return this.#end ?? Math.max(nowUs(), this.start + LENGTH_MIN);
  }

  get isFollowing() {
    return this.#end === null;
  }

  get length() {
    return this.end - this.start;
  }

  fraction(us) {
    return (us - this.start) / this.length;
  }

  us(fraction) {
    return Math.round(this.start + fraction * this.length);
  }

  holds(us) {
    return us >= this.start && us <= this.end;
  }

  /** The last so many microseconds, or everything. */
  showLast(length) {
    const now = nowUs();
    const first = this.begins ?? now - 15 * MINUTE;
    this.start = length === null ? Math.min(first, now - LENGTH_MIN) : Math.max(now - length, Math.min(first, now - LENGTH_MIN));
    this.#end = null;
  }

  zoom(factor, around) {
    this.#set(around - (around - this.start) * factor, around + (this.end - around) * factor);
  }

  pan(us) {
    this.#set(this.start + us, this.end + us, true);
  }

  /** Make sure that an instant is in view. */
  include(us) {
    if (this.holds(us)) return false;
    const half = this.length / 2;
    this.#set(us - half, us + half, true);
    return true;
  }

  #set(start, end, isLengthKept = false) {
    const now = nowUs();
    const first = Math.min(this.begins ?? start, now - LENGTH_MIN);
    const length = Math.min(Math.max(end - start, LENGTH_MIN), now - first);
    let from = isLengthKept ? start : Math.max(start, first);
    from = Math.max(first, Math.min(from, now - length));
    this.start = from;
    const to = from + length;
    this.#end = to >= now - length / 1000 ? null : to;
  }

  /** Instants with labels for the axis, at most about so many. */
  ticks(most) {
    const step = STEPS.find((length) => this.length / length <= most) ?? 28 * DAY;
    const zone = new Date(this.start / 1000).getTimezoneOffset() * MINUTE;
    const found = [];
    for (let us = Math.ceil((this.start - zone) / step) * step + zone; us < this.end; us += step) {
      found.push({ us, label: label(us, step) });
    }
    return found;
  }
}

function label(us, step) {
  if (step >= DAY) return shortDay(us);
  const text = step < MINUTE ? clockTime(us) : minuteTime(us);
  return text === "00:00" ? shortDay(us) : text;
}
