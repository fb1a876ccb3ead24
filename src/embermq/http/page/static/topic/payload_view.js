// One payload, shown in one of the ways that fit it.

import { el } from "../core/dom.js";
import { size, visibleLines } from "../core/text.js";
import { hexView } from "./hex.js";
import { jsonLines, lineElement } from "./json_lines.js";
import { bytesOf, imageType, jsonOf, kindsOf, textOf } from "./payload.js";

export const KIND_NAMES = { number: "Number", json: "JSON", text: "Text", hex: "Hex", image: "Image" };
const TEXT_CHARACTERS_MAX = 64 * 1024;
let shownImage = "";

/** The kind that is shown: what was chosen if it fits, else the most telling one. */
export function kindFor(message, chosen) {
  const kinds = kindsOf(message);
  return kinds.includes(chosen) ? chosen : kinds[0];
}

/** `isMarked(line)` marks lines of text and JSON, for a comparison. */
export function payloadView(message, kind, isMarked = () => false) {
  if (message.payload_bytes === 0) return [el("p", { class: "hint" }, "The payload is empty.")];
  const bytes = bytesOf(message);
  const text = textOf(message);
  const views = {
    number: () => [el("p", { class: "number" }, String(text).trim())],
    json: () => [lines(jsonLines(text).map(lineElement), "Payload as JSON", isMarked)],
    text: () => [lines(textLines(text), "Payload as text", isMarked)],
    hex: () => hexView(bytes),
    image: () => [image(bytes)],
  };
  const rest = message.payload_bytes - bytes.length;
  const hint = rest > 0 ? [el("p", { class: "hint" }, `${size(bytes.length)} of ${size(message.payload_bytes)} are shown.`)] : [];
  return [...views[kind](), ...hint];
}

function lines(elements, label, isMarked) {
  for (const element of elements) if (isMarked(element.textContent)) element.classList.add("marked");
  return el("div", { class: "payload", tabindex: "0", role: "group", "aria-label": label }, elements);
}

function textLines(text) {
  const shown = visibleLines(text.slice(0, TEXT_CHARACTERS_MAX)).split("\n").slice(0, 2000);
  const found = shown.map((line) => el("div", { class: "line" }, line || "\u00a0"));
  if (text.length > TEXT_CHARACTERS_MAX) found.push(el("div", { class: "line json-mark" }, "… cut here"));
  return found;
}

function image(bytes) {
  URL.revokeObjectURL(shownImage);
  shownImage = URL.createObjectURL(new Blob([bytes], { type: imageType(bytes) }));
  const failed = el("p", { class: "hint", hidden: true }, "The browser cannot show this image.");
  const shown = el("img", { class: "payload-image", alt: "The payload as an image", src: shownImage, onerror: () => (failed.hidden = false) });
  return el("div", {}, shown, failed);
}

/** The lines of a payload as text, for a comparison; null if it is not text. */
export function linesOf(message) {
  const text = message ? textOf(message) : null;
  if (text === null || text.length > TEXT_CHARACTERS_MAX) return null;
  if (jsonOf(text) !== undefined) return jsonLines(text).map((line) => line.tokens.map((token) => token.text).join(""));
  return visibleLines(text).split("\n");
}
