// The live messages of this page: from the shared worker where the browser has one, else from a stream of its own.

import { readLatest } from "./stream.js";

const SIGN_OF_LIFE_MS = 20_000;

export class Feed {
  #authorization;
  #tell;
  #port = null;
  #own = null;
  #timer = 0;

  /** `tell` gets what `readLatest` tells. */
  constructor(authorization, tell) {
    this.#authorization = authorization;
    this.#tell = tell;
    addEventListener("pagehide", () => this.stop());
    addEventListener("pageshow", (event) => event.persisted && this.start());
  }

  get isRunning() {
    return this.#port !== null || this.#own !== null;
  }

  start() {
    if (this.isRunning) return;
    const port = sharedPort(() => {
      // The worker cannot be loaded, for example because a newer server has no such file.
      if (this.#port !== port) return;
      this.stop();
      this.#startOwn();
    });
    if (!port) {
      this.#startOwn();
      return;
    }
    this.#port = port;
    port.onmessage = ({ data }) => this.#port === port && this.#tell(data);
    const join = () => port.postMessage({ kind: "join", authorization: this.#authorization });
    this.#timer = setInterval(join, SIGN_OF_LIFE_MS);
    join();
  }

  #startOwn() {
    this.#own = new AbortController();
    readLatest(this.#authorization, this.#own.signal, this.#tell);
  }

  stop() {
    this.#own?.abort();
    this.#port?.postMessage({ kind: "leave" });
    this.#port?.close();
    clearInterval(this.#timer);
    this.#own = this.#port = null;
  }
}

function sharedPort(onFailed) {
  try {
    const worker = new SharedWorker("/page/live/worker.js", { type: "module", name: "embermq-live" });
    worker.onerror = onFailed;
    return worker.port;
  } catch {
    return null;
  }
}
