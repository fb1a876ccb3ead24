// The form to publish a message: text, JSON or a file, with its properties, retained or not.

import { notice } from "../core/dialog.js";
import { el, show } from "../core/dom.js";
import { middleCut, size, visible } from "../core/text.js";
import { textOf } from "./payload.js";
import { undoTo } from "./restore.js";

const FILE_BYTES_MAX = 64 * 1024 * 1024;
const KINDS = { text: "Text", json: "JSON", file: "File" };

/** The form lives on its own, so that live updates of the pane do not disturb what is typed. `message()` is what is retained now. */
export function publishForm(api, topic, message, onDone) {
  const input = (properties) => el("input", { spellcheck: "false", autocomplete: "off", ...properties });
  const name = input({ name: "topic", value: topic, required: true, placeholder: "plant/7/setpoint" });
  const payload = el("textarea", { name: "payload", rows: "4", spellcheck: "false" });
  const file = el("input", { name: "file", type: "file" });
  const qos = el("select", { name: "qos" }, [0, 1, 2].map((one) => el("option", { value: one, selected: one === 1 }, `QoS ${one}`)));
  const retain = el("input", { type: "checkbox", name: "retain", checked: true });
  const fields = {
    content_type: input({ placeholder: "application/json" }),
    message_expiry_interval: input({ type: "number", min: "0", max: "4294967295", placeholder: "seconds" }),
    response_topic: input({}),
    correlation_data: input({}),
    user_properties: el("textarea", { rows: "2", spellcheck: "false", placeholder: "name=value, a line each" }),
  };
  let kind = "text";
  const place = el("div", {});
  const kinds = el("div", { class: "segments", role: "group", "aria-label": "Payload as" }, Object.entries(KINDS).map(([one, word]) => el("button", { type: "button", "data-kind": one, onclick: () => choose(one) }, word)));
  const submit = el("button", { type: "submit", class: "primary" });
  const edit = el("button", { type: "button", class: "small", onclick: () => fill() }, "Edit the retained value");
  choose("text");
  nameSubmit();

  function choose(chosen) {
    kind = chosen;
    for (const button of kinds.children) button.setAttribute("aria-pressed", String(button.dataset.kind === kind));
    show(place, kind === "file" ? el("label", {}, "File", file) : el("label", {}, "Payload", payload));
  }

  function nameSubmit() {
    submit.textContent = retain.checked ? "Publish retained" : "Publish";
  }

  function fill() {
    const current = message();
    if (!current) return notice("Nothing is retained on this topic.");
    const text = textOf(current);
    if (text === null || new TextEncoder().encode(text).length < current.payload_bytes) return notice(text === null ? "The payload is not text: save it, and publish the file." : "The payload is not loaded whole: load all of it first.", true);
    const isJson = /^\s*[[{]/.test(text);
    choose(isJson ? "json" : "text");
    payload.value = text;
    qos.value = String(current.qos);
    const found = current.properties ?? {};
    for (const [field, element] of Object.entries(fields)) element.value = field === "user_properties" ? (found.user_properties ?? []).map((pair) => pair.join("=")).join("\n") : (found[field] ?? "");
    payload.focus();
  }

  async function made() {
    const made = { topic: name.value, qos: Number(qos.value), retain: retain.checked };
    if (kind === "file") {
      const chosen = file.files[0];
      if (!chosen) throw new Error("choose a file");
      if (chosen.size > FILE_BYTES_MAX) throw new Error(`the file has ${size(chosen.size)}`);
      made.payload_base64 = await base64(chosen);
    } else {
      if (kind === "json") JSON.parse(payload.value);
      made.payload = payload.value;
    }
    const properties = Object.fromEntries(Object.entries(fields).filter(([, element]) => element.value !== "").map(([field, element]) => [field, valueOf(field, element.value)]));
    if (Object.keys(properties).length) made.properties = properties;
    return made;
  }

  async function send(event) {
    event.preventDefault();
    try {
      const sent = await made();
      const isEmpty = (sent.payload ?? sent.payload_base64) === "";
      if (isEmpty && sent.retain) throw new Error("an empty retained message clears the topic; use Clear");
      const answer = await api.post("messages/publish", { messages: [sent] });
      if (answer.refused.length) throw new Error(answer.refused[0].error);
      const undo = answer.undo_as_of ? () => undoTo(api, sent.topic, answer.undo_as_of, onDone) : null;
      notice(`Published to ${middleCut(visible(sent.topic), 60)}${sent.retain ? " and retained" : ""}.`, false, undo);
      payload.value = "";
      onDone();
    } catch (error) {
      notice(`Not published: ${error.message}`, true);
    }
  }

  retain.addEventListener("change", nameSubmit);
  return el(
    "form",
    { class: "publish", onsubmit: send },
    el("label", {}, "Topic", name),
    el("div", { class: "buttons" }, kinds, topic !== "" && edit),
    place,
    el("details", {}, el("summary", {}, "Properties"), el(
      "div",
      { class: "properties" },
      el("label", {}, "Content type", fields.content_type),
      el("label", {}, "Expires after", fields.message_expiry_interval),
      el("label", {}, "Response topic", fields.response_topic),
      el("label", {}, "Correlation data", fields.correlation_data),
      el("label", { class: "wide" }, "User properties", fields.user_properties),
    )),
    el("div", { class: "buttons" }, el("label", {}, el("span", { class: "hidden" }, "QoS"), qos), el("label", { class: "check" }, retain, " retain"), submit),
  );
}

function valueOf(field, text) {
  if (field === "message_expiry_interval") return Number(text);
  if (field !== "user_properties") return text;
  return text.split("\n").filter(Boolean).map((line) => {
    const place = line.indexOf("=");
    if (place < 0) throw new Error(`user property ${visible(line)}: expected name=value`);
    return [line.slice(0, place), line.slice(place + 1)];
  });
}

function base64(blob) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result.slice(reader.result.indexOf(",") + 1));
    reader.onerror = () => reject(new Error("the file cannot be read"));
    reader.readAsDataURL(blob);
  });
}
