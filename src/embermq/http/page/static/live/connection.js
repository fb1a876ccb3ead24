// Whether the server can be reached, and how old what is shown is while it cannot.

import { byId, el, setText, show } from "../core/dom.js";
import { longDuration } from "../core/text.js";

export class Connection {
  #lostMs = null;
  #reachedMs = Date.now();

  /** `onLost` is called when the server stops answering, `onBack` when it answers again. */
  constructor({ onLost, onBack }) {
    this.onLost = onLost;
    this.onBack = onBack;
    setInterval(() => this.#show(), 1000);
  }

  get isLost() {
    return this.#lostMs !== null;
  }

  reached() {
    this.#reachedMs = Date.now();
    if (!this.isLost) return;
    this.#lostMs = null;
    this.#show();
    this.onBack();
  }

  lost() {
    if (this.isLost) return;
    this.#lostMs = Date.now();
    this.#show();
    this.onLost();
  }

  #show() {
    const place = byId("connection");
    document.body.dataset.connection = this.isLost ? "lost" : "there";
    if (!this.isLost) {
      show(place);
      return;
    }
    if (!place.firstChild) {
      show(place, el("p", {}, el("strong", {}, "Connection lost. "), el("span", { "aria-hidden": "true" }), " Trying again."));
    }
    setText(place.querySelector("span"), `What is shown is ${longDuration(Date.now() - this.#reachedMs)} old.`);
  }
}
