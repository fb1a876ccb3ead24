// Requests to the HTTP interface. Owns: the Authorization header, and what each failure is called.

import { learn } from "./clock.js";

const PREFIX = "/api/v1/";
const ATTEMPTS_MAX = 4;

/** The server refused: `status`, and its one sentence as the message. */
export class Refusal extends Error {
  constructor(status, sentence) {
    super(sentence);
    this.status = status;
  }
}

/** No answer came. */
export class Unreachable extends Error {}

export class Api {
  #authorization;
  #ending = new AbortController();

  /** `onExpired` is called once when the server no longer accepts the login; then nothing is asked for any more. */
  constructor(authorization, onExpired) {
    this.#authorization = authorization;
    this.onExpired = onExpired;
    this.onReached = () => {};
    this.onLost = () => {};
  }

  get authorization() {
    return this.#authorization;
  }

  /** Abort what is under way and ask for nothing more. */
  end() {
    this.#ending.abort();
  }

  get hasEnded() {
    return this.#ending.signal.aborted;
  }

  async get(path, query = {}, signal = undefined) {
    const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined);
    const search = new URLSearchParams(given).toString();
    const url = PREFIX + path + (search ? `?${search}` : "");
    for (let attempt = 1; ; attempt += 1) {
      const response = await this.#fetch(url, { signal: this.#signal(signal) });
      if (response.status !== 503 || attempt === ATTEMPTS_MAX || !response.headers.has("Retry-After")) {
        return await this.#json(response);
      }
      await pause(Number(response.headers.get("Retry-After")) * 1000 * (0.5 + Math.random()));
      signal?.throwIfAborted();
    }
  }

  async post(path, body, signal = undefined) {
    const options = {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body),
      signal: this.#signal(signal),
    };
    return await this.#json(await this.#fetch(PREFIX + path, options));
  }

  /** All items of a list at once, as lines of JSON. */
  async lines(path, query = {}) {
    const response = await this.#fetch(`${PREFIX}${path}?${new URLSearchParams(query)}`, { signal: this.#signal(), headers: { Accept: "application/x-ndjson" } });
    if (!response.ok) return await this.#json(response);
    const lines = (await response.text()).split("\n").filter(Boolean);
    this.onReached();
    const last = lines.length ? JSON.parse(lines.at(-1)) : {};
    if (Object.keys(last).join() === "error") throw new Refusal(503, last.error);
    return lines;
  }

  /** An answer that is read as it comes. */
  async stream(path, query, signal) {
    const response = await this.#fetch(`${PREFIX}${path}?${new URLSearchParams(query)}`, { signal: this.#signal(signal) });
    return response.ok ? response : await this.#json(response);
  }

  #signal(more) {
    return more ? AbortSignal.any([this.#ending.signal, more]) : this.#ending.signal;
  }

  async #fetch(url, options) {
    let response;
    try {
      response = await fetch(url, {
        ...options,
        headers: { ...options.headers, Authorization: this.#authorization },
        cache: "no-store",
        credentials: "omit",
      });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      this.onLost();
      throw new Unreachable("the server does not answer");
    }
    learn(response.headers.get("Date"));
    if (response.status === 401) {
      // Every further attempt would count as a failed login, after ten of which the server refuses this address.
      const isFirst = !this.hasEnded;
      this.end();
      if (isFirst) this.onExpired();
      throw new Refusal(401, "the server does not know this login");
    }
    return response;
  }

  async #json(response) {
    let answer;
    try {
      answer = await response.json();
    } catch (error) {
      if (error.name === "AbortError") throw error;
      if (error instanceof SyntaxError) throw new Refusal(response.status, `the answer cannot be read (${response.status})`);
      this.onLost();
      throw new Unreachable("the connection ended in the middle of an answer");
    }
    this.onReached();
    if (!response.ok) throw new Refusal(response.status, answer.error ?? `status ${response.status}`);
    return answer;
  }
}

export function pause(milliseconds) {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}

/** Whether an error only says that somebody changed their mind. */
export function isAborted(error) {
  return error.name === "AbortError";
}
