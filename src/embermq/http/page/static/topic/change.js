// What an operator can change: publish a retained message, clear one topic or a branch.

import { ask, notice } from "../core/dialog.js";
import { el } from "../core/dom.js";
import { counted, middleCut, visible } from "../core/text.js";

/** The form to publish. It lives on its own, so that live updates of the pane do not disturb what is typed. */
export function publishForm(api, topic, onDone) {
  const name = el("input", { name: "topic", value: topic, spellcheck: "false", autocomplete: "off", required: true });
  const payload = el("textarea", { name: "payload", rows: "3", spellcheck: "false", required: true });
  const qos = el("select", { name: "qos" }, [0, 1, 2].map((one) => el("option", { value: one, selected: one === 1 }, `QoS ${one}`)));
  const send = async (event) => {
    event.preventDefault();
    try {
      const message = { topic: name.value, payload: payload.value, qos: Number(qos.value) };
      const answer = await api.post("retained/set", { messages: [message] });
      if (answer.refused.length) notice(`Not published: ${answer.refused[0].error}`, true);
      else {
        notice(`Published to ${visible(name.value)} and retained.`);
        payload.value = "";
        onDone();
      }
    } catch (error) {
      notice(`Not published: ${error.message}`, true);
    }
  };
  return el(
    "form",
    { class: "publish", onsubmit: send },
    el("label", {}, "Topic", name),
    el("label", {}, "Payload", payload),
    el("div", { class: "buttons" }, el("label", {}, el("span", { class: "hidden" }, "QoS"), qos), el("button", { type: "submit", class: "primary" }, "Publish retained")),
  );
}

/** Clear the retained message of one topic, or all at and below it, after a question. */
export async function clear(api, topic, isBranch, onDone) {
  const filter = isBranch ? `${topic}/#` : topic;
  try {
    const { cleared } = await api.post("retained/clear", { filter, dry_run: true });
    if (cleared === 0) {
      notice("Nothing is retained here.");
      return;
    }
    const isSure = await ask({
      title: isBranch ? `Clear ${counted(cleared, "retained message")}?` : "Clear this retained message?",
      effects: [
        el("bdi", { class: "topic-name" }, middleCut(visible(isBranch ? filter : topic), 200)),
        "Clients that subscribe later do not get it any more.",
        "Clients that are subscribed get an empty message.",
        "The log keeps the history: the slider still shows it.",
      ],
      action: isBranch ? `Clear ${cleared}` : "Clear",
    });
    if (!isSure) return;
    const answer = await api.post("retained/clear", { filter });
    notice(`${counted(answer.cleared, "retained message")} cleared.`);
    onDone();
  } catch (error) {
    notice(`Not cleared: ${error.message}`, true);
  }
}
