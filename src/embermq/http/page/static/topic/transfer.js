// Export a branch to a file, now or as of the instant that is shown, and import one.

import { ask, notice } from "../core/dialog.js";
import { el } from "../core/dom.js";
import { state } from "../core/state.js";
import { asked, count, counted, isoText, middleCut, size, visible } from "../core/text.js";
import { readCsv, writeCsv } from "./csv.js";
import { undoTo } from "./restore.js";

/** A larger file is for `ember retained import`. */
const FILE_BYTES_MAX = 256 * 1024 * 1024;
const PIECE_MESSAGES = 1000;
const PIECE_CHARACTERS = 512 * 1024;

/** Save the retained messages that a filter matches, as lines of JSON or as CSV. */
export async function exportBranch(api, filter, format) {
  try {
    const lines = await api.lines("retained", state.at === null ? { filter } : { filter, as_of: asked(state.at) });
    if (!lines.length) {
      notice("Nothing is retained here.");
      return;
    }
    const text = format === "csv" ? writeCsv(lines.map((line) => JSON.parse(line))) : `${lines.join("\n")}\n`;
    const when = state.at === null ? "now" : isoText(state.at).slice(0, 19).replaceAll(":", "-");
    const name = `${filter.replace(/\/?#$/, "").replaceAll(/[^\w.-]+/g, "-") || "all"}-${when}.${format === "csv" ? "csv" : "ndjson"}`;
    save(new Blob([text], { type: format === "csv" ? "text/csv" : "application/x-ndjson" }), name);
    notice(`${counted(lines.length, "message")} saved in ${name}.`);
  } catch (error) {
    notice(`Not exported: ${error.message}`, true);
  }
}

export function save(blob, name) {
  const link = el("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** Ask for a file that was exported, and retain its messages after a question. */
export function importFile(api, onDone) {
  const input = el("input", { type: "file", accept: ".ndjson,.json,.jsonl,.csv" });
  input.addEventListener("change", () => input.files[0] && importFrom(api, input.files[0], onDone));
  input.click();
}

export async function importFrom(api, file, onDone) {
  try {
    if (file.size > FILE_BYTES_MAX) throw new Error(`the file has ${size(file.size)}; the page takes ${size(FILE_BYTES_MAX)}, and "ember retained import" takes more`);
    const messages = parsed(await file.text());
    if (!messages.length) throw new Error("the file has no message");
    const names = messages.slice(0, 3).map((one) => middleCut(visible(one.topic), 60)).join(", ");
    const isSure = await ask({
      title: `Retain ${counted(messages.length, "message")}?`,
      effects: [`${names}${messages.length > 3 ? ", …" : ""}`, "What is retained on these topics now is replaced; other topics stay.", "Subscribed clients get the messages as new ones."],
      action: `Retain ${messages.length}`,
    });
    if (isSure) await retainAll(api, messages, onDone);
  } catch (error) {
    notice(`Not imported: ${error.message}`, true);
  }
}

async function retainAll(api, messages, onDone) {
  let retained = 0;
  let undoAsOf = null;
  const refused = [];
  let failure = "";
  for (const piece of pieces(messages)) {
    try {
      const answer = await api.post("retained/set", { messages: piece });
      retained += answer.retained;
      undoAsOf ??= answer.undo_as_of ?? null;
      refused.push(...answer.refused);
      notice(`${counted(retained, "message")} retained …`);
    } catch (error) {
      if (!retained) throw error;
      failure = ` The other ${count(messages.length - retained - refused.length)} are not: ${error.message}`;
      break;
    }
  }
  const undo = undoAsOf ? () => undoTo(api, commonFilter(messages.map((one) => one.topic)), undoAsOf, onDone) : null;
  notice(`${counted(retained, "message")} retained.${refused.length ? ` ${refused.length} refused: ${refused[0].error}` : ""}${failure}`, refused.length > 0 || failure !== "", undo);
  onDone();
}

function* pieces(messages) {
  let piece = [];
  let characters = 0;
  for (const message of messages) {
    const length = (message.payload ?? message.payload_base64).length;
    if (piece.length && (piece.length === PIECE_MESSAGES || characters + length > PIECE_CHARACTERS)) {
      yield piece;
      piece = [];
      characters = 0;
    }
    piece.push(message);
    characters += length;
  }
  yield piece;
}

/** The messages of a file: lines of JSON, an array, or CSV with the same names. */
function parsed(text) {
  const isJson = /^\s*[[{]/.test(text);
  const found = !isJson ? readCsv(text) : /^\s*\[/.test(text) ? JSON.parse(text) : text.split("\n").filter((line) => line.trim()).map((line) => JSON.parse(line));
  return found.map((one, place) => {
    if (typeof one?.topic !== "string" || typeof (one.payload ?? one.payload_base64) !== "string") throw new Error(`message ${place + 1} has no topic, or no payload that is a text`);
    const message = { topic: one.topic, qos: Number(one.qos ?? 0) };
    if (one.payload_base64) message.payload_base64 = one.payload_base64;
    else message.payload = one.payload;
    if (one.properties_base64) message.properties_base64 = one.properties_base64;
    return message;
  });
}

/** A filter that matches all topics, as narrow as their common levels allow. */
export function commonFilter(topics) {
  const first = topics[0].split("/");
  let same = first.length;
  for (const topic of topics) {
    const levels = topic.split("/");
    let place = 0;
    while (place < same && levels[place] === first[place]) place += 1;
    same = place;
  }
  if (topics.every((topic) => topic === topics[0])) return topics[0];
  return [...first.slice(0, same), "#"].join("/");
}
