// JSON as indented lines. The text itself is laid out, not its value, so numbers keep every digit.

import { el } from "../core/dom.js";
import { visible } from "../core/text.js";

const TOKEN = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null|[{}[\],:]/g;
const LINES_MAX = 2000;
const CLOSING = { "{": "}", "[": "]" };

/** Lines of `{depth, tokens: [{text, kind}]}` from a text that is known to be JSON. */
export function jsonLines(text) {
  const tokens = text.match(TOKEN) ?? [];
  const lines = [{ depth: 0, tokens: [] }];
  let depth = 0;
  const add = (shown, kind) => lines.at(-1).tokens.push({ text: shown, kind });
  for (let place = 0; place < tokens.length && lines.length < LINES_MAX; place += 1) {
    const token = tokens[place];
    if (token in CLOSING && tokens[place + 1] === CLOSING[token]) {
      add(token + CLOSING[token], "mark");
      place += 1;
    } else if (token in CLOSING) {
      add(token, "mark");
      depth += 1;
      lines.push({ depth, tokens: [] });
    } else if (token === "}" || token === "]") {
      depth -= 1;
      lines.push({ depth, tokens: [{ text: token, kind: "mark" }] });
    } else if (token === ",") {
      add(",", "mark");
      lines.push({ depth, tokens: [] });
    } else if (token === ":") {
      add(": ", "mark");
    } else {
      add(visible(token), kindOf(token, tokens[place + 1]));
    }
  }
  if (lines.length >= LINES_MAX) lines.push({ depth: 0, tokens: [{ text: "… cut here", kind: "mark" }] });
  return lines;
}

function kindOf(token, following) {
  if (token[0] === '"') return following === ":" ? "key" : "string";
  return /^[tfn]/.test(token) ? "word" : "number";
}

export function lineElement(line) {
  const row = el("div", { class: "line" }, line.tokens.map(({ text, kind }) => el("span", { class: `json-${kind}` }, text)));
  row.style.paddingInlineStart = `${Math.min(line.depth, 20) * 1.25 + 0.75}rem`;
  return row;
}

/** The numbers in a JSON value by their path, such as "motor.current", a bounded number of them. */
export function numbersIn(value, pathsMax = 24) {
  const found = new Map();
  const visit = (part, path) => {
    if (found.size >= pathsMax || path.length > 6) return;
    if (typeof part === "number") found.set(path.join("."), part);
    else if (part !== null && typeof part === "object") {
      for (const [key, inner] of Object.entries(part).slice(0, 64)) visit(inner, [...path, key]);
    }
  };
  visit(value, []);
  return found;
}
