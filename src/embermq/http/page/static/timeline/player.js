// Plays the past forward until it is now.

import { nowUs } from "../core/clock.js";
import { byId, el, setText } from "../core/dom.js";
import { change, onChange, state } from "../core/state.js";

export const SPEEDS = [1, 10, 60, 300, 1000];
const STEP_MS = 250;

export class Player {
  #timer = 0;
  #atMs = 0;
  #isStep = false;

  constructor() {
    byId("speed").append(...SPEEDS.map((speed) => el("option", { value: speed, selected: speed === 60 }, `${speed}×`)));
    byId("play").addEventListener("click", () => this.toggle());
    onChange((changed) => {
      if (changed.has("at") && !this.#isStep) this.stop();
    });
    this.#show();
  }

  get isPlaying() {
    return this.#timer !== 0;
  }

  toggle() {
    if (this.isPlaying) this.stop();
    else if (state.at !== null) this.#start();
  }

  #start() {
    this.#atMs = performance.now();
    this.#timer = setInterval(() => this.#step(), STEP_MS);
    this.#show();
  }

  stop() {
    clearInterval(this.#timer);
    this.#timer = 0;
    this.#show();
  }

  #step() {
    const passedMs = performance.now() - this.#atMs;
    this.#atMs += passedMs;
    const at = Math.round(state.at + passedMs * 1000 * Number(byId("speed").value));
    this.#isStep = true;
    change({ at: at >= nowUs() ? null : at });
    this.#isStep = false;
    if (state.at === null) this.stop();
  }

  /** Also called when live begins or ends: live needs no play. */
  refresh() {
    this.#show();
  }

  #show() {
    const button = byId("play");
    setText(button.querySelector(".word"), this.isPlaying ? "Pause" : "Play");
    button.setAttribute("aria-pressed", String(this.isPlaying));
    button.disabled = state.at === null;
  }
}
