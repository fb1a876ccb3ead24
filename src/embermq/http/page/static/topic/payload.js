// Payloads: bytes, the text they may be, and in which ways they can be shown.

import { middleCut, size, visible } from "../core/text.js";

const PREVIEW_CHARACTERS_MAX = 100;
const PREVIEW_BYTES = 8;
const JSON_CHARACTERS_MAX = 512 * 1024;
const NUMBER = /^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?\s*$/;
const previews = new WeakMap();

/** The bytes of a message's payload, as many as were sent. */
export function bytesOf(message) {
  if (message.payload_base64 !== undefined) return Uint8Array.from(atob(message.payload_base64), (one) => one.charCodeAt(0));
  return new TextEncoder().encode(message.payload ?? "");
}

/** Whether only the beginning of the payload is here. */
export function isCut(message) {
  return bytesOf(message).length < message.payload_bytes;
}

/** The payload as text; null if it is not UTF-8. A character that was cut at the end is left out. */
export function textOf(message) {
  if (message.payload_base64 === undefined) return message.payload ?? "";
  try {
    const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
    const bytes = bytesOf(message);
    return decoder.decode(bytes, { stream: bytes.length < message.payload_bytes });
  } catch {
    return null;
  }
}

/** The type of an image by its first bytes. Only types that cannot hold scripts. */
export function imageType(bytes) {
  const begins = (place, ...values) => values.every((value, index) => bytes[place + index] === value);
  if (begins(0, 0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a)) return "image/png";
  if (begins(0, 0xff, 0xd8, 0xff)) return "image/jpeg";
  if (begins(0, 0x47, 0x49, 0x46, 0x38)) return "image/gif";
  if (begins(0, 0x52, 0x49, 0x46, 0x46) && begins(8, 0x57, 0x45, 0x42, 0x50)) return "image/webp";
  return null;
}

export function numberOf(text) {
  return text !== null && text.length < 64 && NUMBER.test(text) ? Number(text) : null;
}

/** The value of a payload that is JSON and more than a number; undefined otherwise. */
export function jsonOf(text) {
  if (text === null || text.length > JSON_CHARACTERS_MAX || !/^\s*[[{"tfn]/.test(text)) return undefined;
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** The ways in which a payload can be shown, the most telling one first. */
export function kindsOf(message) {
  const kinds = [];
  const text = textOf(message);
  if (imageType(bytesOf(message))) kinds.push("image");
  if (numberOf(text) !== null) kinds.push("number");
  if (jsonOf(text) !== undefined) kinds.push("json");
  if (text !== null) kinds.push("text");
  kinds.push("hex");
  return kinds;
}

/** One short line. */
export function preview(message) {
  let line = previews.get(message);
  if (line === undefined) {
    line = made(message);
    previews.set(message, line);
  }
  return line;
}

function made(message) {
  if (message.payload_bytes === 0) return "(empty)";
  const text = textOf(message);
  if (text !== null) return middleCut(visible(text.slice(0, 4 * PREVIEW_CHARACTERS_MAX)), PREVIEW_CHARACTERS_MAX);
  const bytes = bytesOf(message);
  const type = imageType(bytes);
  if (type) return `${type.slice(6).toUpperCase()} image, ${size(message.payload_bytes)}`;
  const shown = [...bytes.slice(0, PREVIEW_BYTES)].map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
  return `${shown}${message.payload_bytes > PREVIEW_BYTES ? " …" : ""} (${size(message.payload_bytes)})`;
}
