// What is known of one message beside its payload.

import { nowUs } from "../core/clock.js";
import { el } from "../core/dom.js";
import { clockTimeExact, count, duration, instant, longDuration, microseconds, middleCut, sender, size, utc, visible } from "../core/text.js";

const VALUE_CHARACTERS_MAX = 400;

/** One line: when, how long ago, by whom. */
export function origin(message, atUs) {
  const us = microseconds(message.timestamp);
  if (Number.isNaN(us)) return el("p", { class: "origin" });
  const now = nowUs();
  const day = instant(us, now).includes(",") ? `${instant(us, now).split(",")[0]}, ` : "";
  return el(
    "p",
    { class: "origin" },
    el("time", { title: utc(us) }, `${day}${clockTimeExact(us)}`),
    `, ${longDuration((atUs - us) / 1000)} ${atUs >= now - 5_000_000 ? "ago" : "before"}`,
    message.client_id ? [", by ", el("bdi", { class: "client" }, sender(message.client_id))] : null,
  );
}

export function badges(message, isRetained) {
  return el(
    "p",
    { class: "badges" },
    el("span", { class: isRetained ? "badge retained" : "badge" }, isRetained ? "retained" : "not retained"),
    el("span", { class: "badge" }, `QoS ${message.qos}`),
    el("span", { class: "badge" }, size(message.payload_bytes)),
    message.expires && el("span", { class: "badge", title: utc(microseconds(message.expires)) }, `expires in ${duration((microseconds(message.expires) - nowUs()) / 1000)}`),
  );
}

/** Offset and the properties of MQTT 5. */
export function details(message) {
  const rows = [];
  if (message.offset !== undefined) rows.push(["offset in the log", count(message.offset)]);
  for (const [name, value] of Object.entries(message.properties ?? {})) {
    if (name === "user_properties") for (const [key, one] of value) rows.push([key, one]);
    else rows.push([name.replaceAll("_", " "), String(value)]);
  }
  return el("dl", { class: "details" }, rows.map(([name, value]) => [
    el("dt", {}, el("bdi", {}, middleCut(visible(String(name)), 80))),
    el("dd", {}, el("bdi", {}, middleCut(visible(String(value)), VALUE_CHARACTERS_MAX))),
  ]).flat());
}
