// The time slider as a whole: what it covers, what it says, and how it follows the clock.

import { nowUs } from "../core/clock.js";
import { byId, el, oncePerFrame, setText, show } from "../core/dom.js";
import { change, isComparing, isLive, onChange, state } from "../core/state.js";
import { clockTime, day, instant, longDuration, utc } from "../core/text.js";
import { Handles } from "./handles.js";
import { Marks } from "./marks.js";
import { Player } from "./player.js";
import { PRESETS, Range } from "./range.js";
import { Rates } from "./rates.js";

const REFRESH_MS = 5000;
const LOAD_DELAY_MS = 120;
/** A label of the axis for which there is no room before its end is left out. */
const LABEL_CHARACTER_PIXELS = 8;
/** The first range is all that the log has, if that is not more than this. */
const FIRST_RANGE_MAX_US = 24 * 3600 * 1_000_000;

export class Timeline {
  #loadTimer = 0;
  #isPlaced = false;
  #isLost = false;

  constructor(api) {
    this.range = new Range();
    this.marks = new Marks(api, this.range);
    this.rates = new Rates(api, this.range, (begins) => this.#known(begins));
    this.handles = new Handles(this.range, this.marks, (factor, around, pan) => this.#zoom(factor, around, pan));
    this.player = new Player();
    this.draw = oncePerFrame(() => this.#draw());
    this.#buttons();
    onChange((changed) => this.#changed(changed));
    new ResizeObserver(this.draw).observe(byId("track"));
    setInterval(() => this.#tick(), 1000);
    this.rates.load();
    this.#changed(new Set(["at", "from", "topic"]));
  }

  #buttons() {
    byId("ranges").append(
      ...PRESETS.map(([label, length]) =>
        el("button", { type: "button", class: "quiet", onclick: () => this.#preset(length) }, label)),
    );
    byId("zoom-in").addEventListener("click", () => this.#zoom(0.5, this.#middle()));
    byId("zoom-out").addEventListener("click", () => this.#zoom(2, this.#middle()));
    byId("go-live").addEventListener("click", () => this.goLive());
    byId("previous").addEventListener("click", () => this.handles.step(-1));
    byId("next").addEventListener("click", () => this.handles.step(1));
    byId("compare").addEventListener("click", () => this.toggleCompare());
  }

  #middle() {
    return state.at !== null && this.range.holds(state.at) ? state.at : this.range.isFollowing ? this.range.end : this.range.us(0.5);
  }

  /** Whether the server answers: while it does not, nothing is live. */
  setLost(isLost) {
    this.#isLost = isLost;
    this.draw();
  }

  goLive() {
    if (!isLive()) byId("handle-at").focus({ preventScroll: true });
    change({ at: null });
  }

  /** Begin to compare with an instant a quarter of the range before, or end it. */
  toggleCompare() {
    if (isComparing()) change({ from: null });
    else this.handles.compareFrom(Math.max((state.at ?? nowUs()) - this.range.length / 4, this.range.start));
  }

  #preset(length) {
    this.range.showLast(length);
    if (state.at !== null) this.range.include(state.at);
    this.#moved();
  }

  #zoom(factor, around, pan = 0) {
    if (pan) this.range.pan(pan);
    else this.range.zoom(factor, around);
    this.#moved();
  }

  #moved() {
    this.draw();
    clearTimeout(this.#loadTimer);
    this.#loadTimer = setTimeout(() => {
      this.rates.load.instead();
      this.marks.load.instead();
    }, LOAD_DELAY_MS);
  }

  #known(begins) {
    this.range.begins = begins;
    if (!this.#isPlaced && begins !== null) {
      this.#isPlaced = true;
      const length = nowUs() - begins;
      this.range.showLast(length > FIRST_RANGE_MAX_US ? FIRST_RANGE_MAX_US : null);
      for (const us of [state.at, state.from]) if (us !== null) this.range.include(Math.max(us, begins));
      this.#moved();
    }
    this.draw();
  }

  #changed(changed) {
    if (changed.has("topic")) this.marks.load.instead();
    if (changed.has("at") || changed.has("from")) {
      for (const us of [state.at, state.from]) {
        if (us !== null && this.#isPlaced && this.range.include(us)) this.#moved();
      }
      this.player.refresh();
      this.draw();
    }
  }

  #tick() {
    this.draw();
    if (this.range.isFollowing && Date.now() % REFRESH_MS < 1000) {
      this.rates.load();
      this.marks.load();
    }
  }

  #draw() {
    this.handles.draw();
    this.rates.draw();
    this.marks.draw();
    this.#moment();
    const width = byId("track").clientWidth || 800;
    const isWhole = ({ us, label }) => (1 - this.range.fraction(us)) * width > label.length * LABEL_CHARACTER_PIXELS;
    show(byId("axis"), this.range.ticks(Math.max(2, width / 110)).filter(isWhole).map(({ us, label }) => {
      const tick = el("span", {}, label);
      tick.style.left = `${this.range.fraction(us) * 100}%`;
      return tick;
    }));
  }

  /** Live or past is never in doubt: colours, words, and what can be done. */
  #moment() {
    const now = nowUs();
    const shown = isComparing() ? "compare" : isLive() ? "live" : "past";
    document.body.dataset.time = isLive() ? "live" : "past";
    document.body.dataset.comparing = String(isComparing());
    byId("go-live").hidden = isLive();
    byId("compare").setAttribute("aria-pressed", String(isComparing()));
    const at = state.at ?? now;
    const live = this.#isLost ? "Not live" : "Live";
    const words = {
      live: [live, this.#isLost ? "the connection is lost" : "every message as it arrives"],
      past: [`As of ${instant(at, now)}`, `${longDuration((now - at) / 1000)} ago, read-only`],
      compare: [
        isLive() ? `${live}, compared` : `As of ${instant(at, now)}, compared`,
        `with ${instant(state.from ?? now, now)}, ${longDuration(Math.abs(at - (state.from ?? now)) / 1000)} ${(state.from ?? now) <= at ? "earlier" : "later"}`,
      ],
    }[shown];
    setText(byId("moment-state"), words[0]);
    setText(byId("moment-detail"), words[1]);
    byId("moment-state").title = isLive() ? "" : `${day(at)} ${clockTime(at)}, ${utc(at)}`;
    document.title = isLive() && !this.#isLost ? "EmberMQ" : `${words[0]} · EmberMQ`;
  }
}
