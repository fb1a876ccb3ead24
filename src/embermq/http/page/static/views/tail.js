// A live tail: the messages of a filter as they are published. It can be paused; what comes meanwhile is kept, up to a bound.

import { nowUs } from "../core/clock.js";
import { el, oncePerFrame, show } from "../core/dom.js";
import { eventsOf } from "../core/event_stream.js";
import { change } from "../core/state.js";
import { clockTimeExact, count, counted, middleCut, utc, visible } from "../core/text.js";
import { preview } from "../topic/payload.js";

const ROWS_MAX = 500;
const AGAIN_MS = 2000;

export class TailView {
  #api;
  #rows = [];
  #waiting = [];
  #seen = 0;
  #leftOut = 0;
  #isPaused = false;
  #isShown = false;
  #notYet = "";  // why nothing is followed at the moment
  #stream = null;

  constructor(api, element) {
    this.#api = api;
    this.filter = el("input", { value: "#", spellcheck: "false", autocomplete: "off", "aria-label": "Topic filter of the tail" });
    this.pause = el("button", { type: "button", "aria-pressed": "false", onclick: () => this.#setPaused(!this.#isPaused) }, "Pause");
    this.summary = el("p", { class: "explanation", role: "status" });
    this.list = el("ol", { class: "tail", tabindex: "0", "aria-label": "Messages, the newest first" });
    this.draw = oncePerFrame(() => this.#draw());
    const follow = (event) => {
      event.preventDefault();
      this.#clear();
      this.#begin();
    };
    show(element, el("div", { class: "listing-head" }, el("h2", {}, "Live tail")),
      el("form", { class: "line-form", onsubmit: follow }, this.filter, el("button", { type: "submit", class: "primary" }, "Follow"), this.pause,
        el("button", { type: "button", onclick: () => this.#clear() }, "Empty")), this.summary, this.list);
  }

  setShown(isShown) {
    if (isShown === this.#isShown) return;
    this.#isShown = isShown;
    if (isShown) this.#begin();
    else this.#stream?.abort();
  }

  #clear() {
    this.#rows = [];
    this.#waiting = [];
    this.#seen = this.#leftOut = 0;
    this.draw();
  }

  #setPaused(isPaused) {
    this.#isPaused = isPaused;
    this.pause.setAttribute("aria-pressed", String(isPaused));
    this.pause.textContent = isPaused ? "Go on" : "Pause";
    if (!isPaused) {
      this.#rows = [...this.#waiting, ...this.#rows].slice(0, ROWS_MAX);
      this.#waiting = [];
    }
    this.draw();
  }

  async #begin() {
    this.#stream?.abort();
    const stream = new AbortController();
    this.#stream = stream;
    this.#notYet = "Waiting for the server …";
    this.#draw();  // at once: the count that stands there is that of the filter before
    try {
      const response = await this.#api.stream("messages/tail", { filter: this.filter.value }, stream.signal);
      this.#notYet = "";
      this.draw();
      for await (const event of eventsOf(response)) this.#take(event);
      if (!stream.signal.aborted) throw new Error("the server has ended the tail");
    } catch (error) {
      if (stream.signal.aborted || this.#api.hasEnded) return;
      const again = "; it is followed again as soon as that is possible. What is published meanwhile is in the history only.";
      this.#notYet = el("span", { class: "failure" }, `${error.message}${isWrong(error) ? "" : again}`);
      this.draw();
      if (!isWrong(error)) setTimeout(() => this.#stream === stream && !stream.signal.aborted && this.#begin(), AGAIN_MS);
    }
  }

  #take({ name, data }) {
    if (name === "left-out") this.#leftOut += JSON.parse(data).messages;
    else if (name === "message" && data) {
      this.#seen += 1;
      const into = this.#isPaused ? this.#waiting : this.#rows;
      into.unshift({ us: nowUs(), message: JSON.parse(data) });
      if (into.length > ROWS_MAX) into.pop();
    } else return;
    this.draw();
  }

  #draw() {
    const missed = this.#leftOut ? ` ${count(this.#leftOut)} left out, since they came too fast.` : "";
    const waiting = this.#isPaused ? ` Paused, ${counted(this.#waiting.length, "new message")} since.` : "";
    show(this.summary, this.#notYet || `${counted(this.#seen, "message")}.${waiting}${missed}`);
    if (this.#isPaused && this.list.children.length) return;
    show(this.list, this.#rows.map((row) => (row.element ??= line(row))));
  }
}

/** Whether asking again would be refused again: a wrong filter, or no right. */
function isWrong(error) {
  return error.status >= 400 && error.status < 500;
}

function line({ us, message }) {
  const open = () => change({ view: "topics", topic: message.topic }, { isStep: true });
  return el("li", {},
    el("time", { title: utc(us) }, clockTimeExact(us)),
    el("button", { type: "button", class: "quiet small", title: visible(message.topic), onclick: open }, el("bdi", {}, middleCut(visible(message.topic), 70))),
    el("span", { class: "hint" }, `QoS ${message.qos}${message.retain ? ", retained" : ""}`),
    el("bdi", { class: "tail-value" }, preview(message)));
}
