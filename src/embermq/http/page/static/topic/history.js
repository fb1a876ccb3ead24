// The last values of a topic as a list: each leads the whole page to its instant.

import { nowUs } from "../core/clock.js";
import { el } from "../core/dom.js";
import { clockTimeExact, counted, microseconds, sender, shortDay, utc } from "../core/text.js";
import { preview } from "./payload.js";

const SHOWN_MAX = 100;

/** `values` newest first, `isAll`: whether there are no older ones; `onPick(us)` moves the page to an instant. */
export function historyList(values, isAll, currentOffset, onPick) {
  if (!values.length) return [el("p", { class: "hint" }, "The log has no message of this topic up to here.")];
  const today = shortDay(nowUs());
  const rows = values.slice(0, SHOWN_MAX).map((value, place) => {
    const isSameClient = place > 0 && values[place - 1].client_id === value.client_id;
    const us = microseconds(value.timestamp);
    const isCleared = value.retain && value.payload_bytes === 0;
    const shownDay = shortDay(us);
    const who = sender(value.client_id ?? "");
    return el(
      "li",
      { class: value.offset === currentOffset ? "current" : null },
      el(
        "button",
        { type: "button", title: `Show everything as of ${utc(us)}`, onclick: () => onPick(us) },
        el("time", {}, shownDay === today ? clockTimeExact(us) : `${shownDay} ${clockTimeExact(us)}`),
        el("span", { class: isCleared ? "history-value cleared" : "history-value" }, isCleared ? "(cleared)" : el("bdi", {}, preview(value))),
        el("span", { class: "history-mark" }, value.retain ? "" : "not retained"),
        el("bdi", { class: "history-client", title: who }, isSameClient ? "" : who),
      ),
    );
  });
  const rest = values.length > SHOWN_MAX || !isAll
    ? [el("p", { class: "hint" }, `the last ${counted(Math.min(values.length, SHOWN_MAX), "message")}; move the slider for older ones`)] : [];
  return [el("ol", { class: "history" }, rows), ...rest];
}
