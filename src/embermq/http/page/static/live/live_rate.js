// How many messages a second there were just now.

const WINDOW_MS = 5000;

export class LiveRate {
  #beganMs = performance.now();
  #added = [];

  add(total) {
    this.#added.push([performance.now(), total]);
  }

  perSecond() {
    const nowMs = performance.now();
    this.#added = this.#added.filter(([atMs]) => nowMs - atMs < WINDOW_MS);
    const coveredMs = Math.max(1000, Math.min(WINDOW_MS, nowMs - this.#beganMs));
    return this.#added.reduce((sum, [, total]) => sum + total, 0) / (coveredMs / 1000);
  }
}
