// A topic at two instants, side by side, with the lines that differ marked.

import { nowUs } from "../core/clock.js";
import { el } from "../core/dom.js";
import { instant } from "../core/text.js";
import { differing } from "./differing.js";
import { badges, origin } from "./facts.js";
import { bytesOf } from "./payload.js";
import { kindFor, linesOf, payloadView } from "./payload_view.js";

/** `found`: {message, other}; `at` null is now, `from` is the other instant. */
export function comparison({ message, other }, { at, from }) {
  const now = nowUs();
  const [a, b] = [linesOf(other), linesOf(message)];
  const [inA, inB] = a && b ? differing(a, b) : [new Set(), new Set()];
  return el(
    "div",
    {},
    el("p", { class: `verdict ${verdict(message, other)[0]}` }, verdict(message, other)[1]),
    el(
      "div",
      { class: "side-by-side" },
      side(`As of ${instant(from, now)}`, other, from, inA, "vanished"),
      side(at === null ? "Now" : `As of ${instant(at, now)}`, message, at ?? now, inB, "appeared"),
    ),
  );
}

function verdict(message, other) {
  if (!message && !other) return ["", "Nothing is retained at either instant."];
  if (!other) return ["appeared", "+ appeared between the two instants"];
  if (!message) return ["vanished", "− vanished between the two instants"];
  if (message.offset === other.offset) return ["", "The same message at both instants."];
  return isSame(message, other) ? ["changed", "~ published again with the same payload"] : ["changed", "~ changed between the two instants"];
}

function isSame(message, other) {
  if (message.payload_bytes !== other.payload_bytes) return false;
  const [a, b] = [bytesOf(message), bytesOf(other)];
  return a.every((byte, place) => byte === b[place]);
}

function side(title, message, atUs, marked, className) {
  let place = -1;
  const isMarked = () => {
    place += 1;
    return marked.has(place);
  };
  return el(
    "section",
    { class: `side ${className}` },
    el("h3", {}, title),
    message ? [badges(message, true), origin(message, atUs), payloadView(message, kindFor(message, null), isMarked)] : el("p", { class: "hint" }, "Nothing retained."),
  );
}
