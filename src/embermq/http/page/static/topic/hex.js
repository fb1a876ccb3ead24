// Bytes as a table of hexadecimal digits and the characters that they may be.

import { el } from "../core/dom.js";
import { size } from "../core/text.js";

/** How many bytes a line may have; the style shows the table that the pane has room for. */
const WIDTHS = [16, 8, 4];
export const HEX_BYTES_MAX = 4096;

export function hexView(bytes) {
  const shown = bytes.slice(0, HEX_BYTES_MAX);
  const tables = WIDTHS.map((width) => el("pre", { class: `payload hex-${width}`, tabindex: "0", "aria-label": "Payload in hexadecimal" }, table(shown, width)));
  const rest = bytes.length > HEX_BYTES_MAX ? [el("p", { class: "hint" }, `the first ${size(HEX_BYTES_MAX)} are shown`)] : [];
  return [el("div", { class: "hex" }, tables), ...rest];
}

function table(bytes, width) {
  const lines = [];
  for (let place = 0; place < bytes.length; place += width) {
    const part = [...bytes.slice(place, place + width)];
    const digits = part.map((byte) => byte.toString(16).padStart(2, "0"));
    const groups = [];
    for (let at = 0; at < width; at += 8) groups.push(digits.slice(at, at + 8).join(" ").padEnd(Math.min(8, width) * 3 - 1));
    const characters = part.map((byte) => (byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : "·")).join("");
    lines.push(`${place.toString(16).padStart(6, "0")}  ${groups.join("  ")}  ${characters}`);
  }
  return lines.join("\n");
}
