// Clear a topic or a branch, and set it back to an instant. Each asks with what will change, and can be taken back.

import { nowUs } from "../core/clock.js";
import { ask, notice } from "../core/dialog.js";
import { el } from "../core/dom.js";
import { asked, count, counted, differingCuts, instant, microseconds, middleCut, visible } from "../core/text.js";
import { preview } from "./payload.js";

const WORDS = { "+": "set", "~": "changed", "-": "cleared" };
const CLASSES = { "+": "appeared", "~": "changed", "-": "vanished" };

/** The filter of a topic, or of all at and below it; null is all topics. */
export function filterOf(topic, isBranch) {
  if (topic === null) return "#";
  return isBranch ? `${topic}/#` : topic;
}

/** Clear the retained message of one topic, or all at and below it, after a question. */
export async function clear(api, topic, isBranch, onDone) {
  const filter = filterOf(topic, isBranch);
  try {
    const { cleared } = await api.post("retained/clear", { filter, dry_run: true });
    if (cleared === 0) {
      notice("Nothing is retained here.");
      return;
    }
    const isSure = await ask({
      title: isBranch ? `Clear ${counted(cleared, "retained message")}?` : "Clear this retained message?",
      effects: [
        el("bdi", { class: "topic-name" }, middleCut(visible(filter), 200)),
        "Clients that subscribe later do not get it any more.",
        "Clients that are subscribed get an empty message.",
        "The log keeps the history: the slider still shows it.",
      ],
      action: isBranch ? `Clear ${cleared}` : "Clear",
    });
    if (!isSure) return;
    const answer = await api.post("retained/clear", { filter });
    const undo = answer.undo_as_of ? () => undoTo(api, filter, answer.undo_as_of, onDone) : null;
    notice(`${counted(answer.cleared, "retained message")} cleared.`, false, undo);
    onDone();
  } catch (error) {
    notice(`Not cleared: ${error.message}`, true);
  }
}

/** Set what a filter matches back to an instant, after a question that shows what changes. */
export async function restore(api, filter, us, onDone) {
  await restoreTo(api, filter, asked(us), `Set back to ${instant(us, nowUs())}?`, onDone);
}

/** Take a change back; the question shows what else has changed since. */
export async function undoTo(api, filter, asOf, onDone) {
  await restoreTo(api, filter, asOf, `Undo: set back to ${instant(microseconds(asOf), nowUs())}?`, onDone);
}

async function restoreTo(api, filter, asOf, title, onDone) {
  const body = { filter, as_of: asOf };
  try {
    const found = await api.post("retained/restore", { ...body, dry_run: true });
    const changed = found.set + found.cleared;
    if (changed === 0) {
      notice(found.refused ? `Not allowed: ${found.refusals[0].error}` : "Nothing is different from that instant.", found.refused > 0);
      return;
    }
    const isSure = await ask({
      title,
      effects: [
        el("bdi", { class: "topic-name" }, middleCut(visible(filter), 200)),
        `${counted(found.set, "topic")} set, ${count(found.cleared)} cleared; ${count(found.unchanged)} are as they were.`,
        found.refused > 0 && `${counted(found.refused, "topic")} may not be changed by you, and will stay.`,
        "Subscribed clients get the messages of then as new ones. The history keeps everything.",
      ].filter(Boolean),
      body: changes(found.changes, changed),
      action: `Set ${counted(changed, "topic")} back`,
    });
    if (!isSure) return;
    notice("Setting back …");
    const answer = await api.post("retained/restore", body);
    const undo = answer.undo_as_of ? () => undoTo(api, filter, answer.undo_as_of, onDone) : null;
    const failed = answer.refused ? ` ${counted(answer.refused, "topic")} not: ${answer.refusals[0].error}` : "";
    notice(`${counted(answer.set + answer.cleared, "topic")} set back.${failed}`, answer.refused > 0, undo);
    onDone();
  } catch (error) {
    notice(`Not set back: ${error.message}`, true);
  }
}

/** The first changes, a line each. */
function changes(found, all) {
  const value = (message, text) => (message ? el("bdi", { class: "change-value" }, text) : el("i", {}, "nothing"));
  const values = ({ now, then }) => {
    const [before, after] = differingCuts(now ? preview(now) : "", then ? preview(then) : "", 40);
    return [value(now, before), " → ", value(then, after)];
  };
  const rows = found.map((change) => el(
    "li",
    {},
    el("span", { class: CLASSES[change.sign], title: WORDS[change.sign] }, change.sign),
    el("bdi", { class: "change-topic", title: visible(change.topic) }, middleCut(visible(change.topic), 60)),
    el("span", {}, values(change)),
  ));
  return [
    el("ol", { class: "changes", tabindex: "0", "aria-label": "What changes" }, rows),
    all > found.length && el("p", { class: "hint" }, `and ${count(all - found.length)} more`),
  ].filter(Boolean);
}
