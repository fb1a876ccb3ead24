// Bytes as a table of hexadecimal digits and the characters that they may be.

import { el } from "../core/dom.js";
import { size } from "../core/text.js";

const WIDTH = 16;
export const HEX_BYTES_MAX = 4096;

export function hexView(bytes) {
  const lines = [];
  for (let place = 0; place < Math.min(bytes.length, HEX_BYTES_MAX); place += WIDTH) {
    const part = [...bytes.slice(place, place + WIDTH)];
    const digits = part.map((byte) => byte.toString(16).padStart(2, "0"));
    const left = digits.slice(0, 8).join(" ").padEnd(23);
    const right = digits.slice(8).join(" ").padEnd(23);
    const characters = part.map((byte) => (byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : "·")).join("");
    lines.push(`${place.toString(16).padStart(6, "0")}  ${left}  ${right}  ${characters}`);
  }
  const rest = bytes.length > HEX_BYTES_MAX ? [el("p", { class: "hint" }, `the first ${size(HEX_BYTES_MAX)} are shown`)] : [];
  return [el("pre", { class: "payload hex", tabindex: "0", "aria-label": "Payload in hexadecimal" }, lines.join("\n")), ...rest];
}
