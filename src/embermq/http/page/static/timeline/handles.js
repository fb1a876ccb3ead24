// The two handles of the slider: the instant that is shown and the instant to compare with. Owns: pointer and keys.

import { nowUs } from "../core/clock.js";
import { byId, setText } from "../core/dom.js";
import { change, isComparing, state } from "../core/state.js";
import { clockTime, clockTimeExact, day, shortDay } from "../core/text.js";

const LIVE_PIXELS = 8;
/** Beyond this a time of day does not say which day is meant. */
const DAY_US = 20 * 3_600_000_000;

export class Handles {
  #range;
  #marks;
  #onZoom;
  #pointers = new Map(); // pointer id -> clientX
  #dragged = null;
  #pinchLength = 0;

  constructor(range, marks, onZoom) {
    this.#range = range;
    this.#marks = marks;
    this.#onZoom = onZoom;
    this.track = byId("track");
    this.track.addEventListener("pointerdown", (event) => this.#down(event));
    this.track.addEventListener("pointermove", (event) => this.#move(event));
    for (const name of ["pointerup", "pointercancel"]) this.track.addEventListener(name, (event) => this.#up(event));
    this.track.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    for (const which of ["at", "from"]) {
      byId(`handle-${which}`).addEventListener("keydown", (event) => this.#key(event, which));
    }
  }

  #fractionAt(clientX) {
    const box = this.track.getBoundingClientRect();
    return Math.min(1, Math.max(0, (clientX - box.left) / box.width));
  }

  #down(event) {
    if (event.button !== 0) return;
    this.track.setPointerCapture(event.pointerId);
    this.#pointers.set(event.pointerId, event.clientX);
    if (this.#pointers.size === 2) {
      this.#dragged = null;
      this.#pinchLength = this.#spread();
      return;
    }
    this.#dragged = this.#nearest(event.clientX);
    byId(`handle-${this.#dragged}`).focus({ preventScroll: true });
    this.#drag(event.clientX);
    event.preventDefault();
  }

  /** Which handle a pointer means: with one there is no choice. */
  #nearest(clientX) {
    if (!isComparing()) return "at";
    const us = this.#range.us(this.#fractionAt(clientX));
    return Math.abs(us - state.from) < Math.abs(us - (state.at ?? nowUs())) ? "from" : "at";
  }

  #move(event) {
    if (!this.#pointers.has(event.pointerId)) return;
    this.#pointers.set(event.pointerId, event.clientX);
    if (this.#pointers.size === 2) {
      const spread = this.#spread();
      const middle = [...this.#pointers.values()].reduce((a, b) => a + b) / 2;
      this.#onZoom(this.#pinchLength / Math.max(1, spread), this.#range.us(this.#fractionAt(middle)));
      this.#pinchLength = spread;
    } else if (this.#dragged) {
      this.#drag(event.clientX);
    }
  }

  #up(event) {
    this.#pointers.delete(event.pointerId);
    if (!this.#pointers.size) this.#dragged = null;
  }

  #spread() {
    const [a, b] = [...this.#pointers.values()];
    return Math.abs(a - b);
  }

  #drag(clientX) {
    const box = this.track.getBoundingClientRect();
    const isAtEnd = this.#range.isFollowing && clientX > box.right - LIVE_PIXELS;
    const us = this.#range.us(this.#fractionAt(clientX));
    if (this.#dragged === "at") this.moveTo(isAtEnd ? null : us);
    else this.compareFrom(us);
  }

  #wheel(event) {
    event.preventDefault();
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      this.#onZoom(1, 0, ((event.deltaX || event.deltaY) / 800) * this.#range.length);
    } else {
      this.#onZoom(Math.exp(Math.max(-300, Math.min(300, event.deltaY)) / 400), this.#range.us(this.#fractionAt(event.clientX)));
    }
  }

  /** Show another instant; null is now. */
  moveTo(us) {
    if (us === null || us >= nowUs()) change({ at: null });
    else change({ at: Math.max(Math.round(us), this.#range.begins ?? 0) });
  }

  compareFrom(us) {
    change({ from: Math.max(Math.round(Math.min(us, nowUs() - 1_000_000)), this.#range.begins ?? 0) });
  }

  /** To the previous (-1) or next (+1) change of the selected topic; without a topic by a hundredth of the range. */
  step(direction, which = "at") {
    const current = which === "at" ? (state.at ?? nowUs()) : state.from;
    let to = current + (direction * this.#range.length) / 100;
    if (state.topic !== null) {
      const change = direction < 0 ? this.#marks.previous(current) : this.#marks.next(current);
      if (Number.isFinite(change)) to = change;
      else if (direction > 0) to = Infinity;
    }
    this.#to(which, to);
  }

  #to(which, us) {
    if (which === "at") this.moveTo(us);
    else this.compareFrom(us);
  }

  #key(event, which) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const current = which === "at" ? (state.at ?? nowUs()) : state.from;
    const { length } = this.#range;
    const keys = {
      ArrowLeft: () => this.step(-1, which),
      ArrowDown: () => this.step(-1, which),
      ArrowRight: () => this.step(1, which),
      ArrowUp: () => this.step(1, which),
      PageDown: () => this.#to(which, current - length / 10),
      PageUp: () => this.#to(which, current + length / 10),
      Home: () => this.#to(which, this.#range.begins ?? this.#range.start),
      End: () => this.#to(which, Infinity),
      "+": () => this.#onZoom(0.5, current),
      "-": () => this.#onZoom(2, current),
    };
    if (!(event.key in keys)) return;
    event.preventDefault();
    event.stopPropagation();
    keys[event.key]();
  }

  draw() {
    const now = nowUs();
    this.#place("at", state.at ?? now, state.at === null ? "live" : flagText(state.at, this.#range.length));
    byId("handle-from").hidden = !isComparing();
    const compared = byId("compared");
    compared.hidden = !isComparing();
    if (!isComparing()) return;
    this.#place("from", state.from, flagText(state.from, this.#range.length));
    const clamp = (us) => Math.min(1, Math.max(0, this.#range.fraction(us))) * 100;
    const [a, b] = [clamp(state.from), clamp(state.at ?? now)].sort((x, y) => x - y);
    compared.style.left = `${a}%`;
    compared.style.width = `${b - a}%`;
  }

  #place(which, us, text) {
    const handle = byId(`handle-${which}`);
    const fraction = this.#range.fraction(us);
    handle.style.left = `${Math.min(1, Math.max(0, fraction)) * 100}%`;
    handle.classList.toggle("outside", fraction < -0.001 || fraction > 1.001);
    handle.classList.toggle("at-end", fraction > 0.93);
    handle.classList.toggle("at-begin", fraction < 0.07);
    setText(handle.firstElementChild, text);
    const begins = this.#range.begins ?? this.#range.start;
    handle.setAttribute("aria-valuemin", Math.round(begins / 1_000_000));
    handle.setAttribute("aria-valuemax", Math.round(nowUs() / 1_000_000));
    handle.setAttribute("aria-valuenow", Math.round(us / 1_000_000));
    const isNow = which === "at" && state.at === null;
    handle.setAttribute("aria-valuetext", isNow ? "live" : `${day(us)} ${clockTime(us)}`);
  }
}

function flagText(us, length) {
  if (length < 60_000_000) return clockTimeExact(us);
  const isFar = length > DAY_US || nowUs() - us > DAY_US;
  return isFar ? `${shortDay(us)} ${clockTime(us)}` : clockTime(us);
}
