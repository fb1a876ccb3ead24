// What the page shows, kept in the address: view, search, topic, instant and the instant to compare with.
// A link with it shows a colleague the same thing.

import { isoText, microseconds } from "./text.js";

export const VIEWS = ["topics", "clients", "sessions", "groups", "tables", "health", "tail", "chart", "sql", "access"];

/** `at` and `from` are microseconds since 1970. `at` null is live; `from` null is no comparison. */
export const state = { view: "topics", search: "", topic: null, at: null, from: null, chart: "", isOnlyDifferences: true };

/** Safari refuses more than 100 changes of the address in 30 s, and a slider that is moved makes 60 in a second. */
const WRITE_MS = 500;

const listeners = [];
let unwritten = null; // the fragment that the newest entry of the history is to get
let writeTimer = 0;

/** Call `listener(changed)` with the set of changed names after every change. */
export function onChange(listener) {
  listeners.push(listener);
}

/** Change the state. What one might want to go back from becomes an entry of the history. */
export function change(values, { isStep = false } = {}) {
  const changed = new Set(Object.keys(values).filter((name) => state[name] !== values[name]));
  if (!changed.size) return;
  Object.assign(state, values);
  write(isStep);
  for (const listener of listeners) listener(changed);
}

export function isLive() {
  return state.at === null;
}

export function isComparing() {
  return state.from !== null;
}

/** What is to be in the address. */
function fragment() {
  const query = new URLSearchParams();
  if (state.search) query.set("search", state.search);
  if (state.topic !== null) query.set("topic", state.topic);
  if (state.at !== null) query.set("at", isoText(state.at));
  if (state.from !== null) query.set("from", isoText(state.from));
  if (state.chart) query.set("chart", state.chart);
  if (!state.isOnlyDifferences) query.set("all", "1");
  // Slashes and colons are allowed in a fragment, and are easier to read.
  const text = query.toString().replaceAll("%2F", "/").replaceAll("%3A", ":");
  return `#${state.view}${text ? `?${text}` : ""}`;
}

function write(isStep) {
  if (isStep) {
    writeNow(); // what came before this step belongs to the entry before it
    if (fragment() === location.hash || put("pushState", fragment())) return;
  }
  unwritten = fragment();
  writeTimer ||= setTimeout(writeNow, WRITE_MS);
}

function writeNow() {
  const written = unwritten;
  dropUnwritten();
  if (written === null || written === location.hash || put("replaceState", written)) return;
  unwritten = written;
  writeTimer = setTimeout(writeNow, WRITE_MS);
}

function dropUnwritten() {
  clearTimeout(writeTimer);
  writeTimer = 0;
  unwritten = null;
}

/** False: the browser refuses, for now, because the address was changed too often. */
function put(how, written) {
  try {
    history[how](null, "", written);
    return true;
  } catch (error) {
    if (error.name !== "SecurityError") throw error;
    return false;
  }
}

function read() {
  const [view, text = ""] = splitOnce(location.hash.slice(1), "?");
  const query = new URLSearchParams(text);
  const at = microseconds(query.get("at"));
  const from = microseconds(query.get("from"));
  return {
    view: VIEWS.includes(view) ? view : "topics",
    search: query.get("search") ?? "",
    topic: query.get("topic"),
    at: Number.isNaN(at) ? null : at,
    from: Number.isNaN(from) ? null : from,
    chart: query.get("chart") ?? "",
    isOnlyDifferences: query.get("all") !== "1",
  };
}

function splitOnce(text, separator) {
  const place = text.indexOf(separator);
  return place < 0 ? [text] : [text.slice(0, place), text.slice(place + 1)];
}

/** Take the state from the address, now and whenever somebody changes it. */
export function readAddress() {
  Object.assign(state, read());
  const follow = () => {
    dropUnwritten();
    change(read());
  };
  addEventListener("popstate", follow);
  addEventListener("hashchange", follow);
  addEventListener("pagehide", writeNow);
}
