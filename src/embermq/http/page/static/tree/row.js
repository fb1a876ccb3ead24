// One row of the tree: its elements, made once, and brought up to date when its node changes.

import { nowMs } from "../core/clock.js";
import { el, setClass, setText } from "../core/dom.js";
import { count, counted, duration, middleCut, microseconds, rate, utc, visible } from "../core/text.js";
import { preview } from "../topic/payload.js";

const NAME_CHARACTERS_MAX = 90;
/** A longer name keeps its end when there is no room for all of it: names of one branch often differ there. */
const WHOLE_CHARACTERS_MAX = 20;
const END_CHARACTERS = 8;
const SIGNS = { "+": "appeared", "~": "changed", "-": "vanished" };
const FLASH_MS = 900;

export class Row {
  constructor(node) {
    this.node = node;
    this.twist = el("span", { class: "twist", "aria-hidden": "true" });
    this.sign = el("span", { class: "sign" });
    this.name = el("span", { class: "name" });
    this.count = el("span", { class: "count" });
    this.differences = el("span", { class: "differences" });
    this.value = el("span", { class: "value" }, el("bdi"));
    this.mark = el("span", { class: "mark" });
    this.rate = el("span", { class: "rate" });
    this.age = el("span", { class: "age" });
    this.element = el(
      "div",
      { role: "treeitem", class: "row", id: `row-${node.id}` },
      this.twist, this.sign, this.name, this.count, this.differences, this.value, this.mark, this.rate, this.age,
    );
    this.element.node = node;
    this.flashedMs = node.flashedMs;
    const name = visible(node.level === "" ? "(empty)" : node.level);
    this.name.append(...nameParts(middleCut(name, NAME_CHARACTERS_MAX)));
    setClass(this.name, "empty", node.level === "");
    this.name.title = visible(node.topic);
  }

  /** `context`: {isSelected, isActive, isLive, isComparing, isFlashing} */
  update(context) {
    const { node, element } = this;
    element.setAttribute("aria-level", node.depth + 1);
    setAttribute(element, "aria-expanded", node.hasChildren ? String(node.isOpen) : null);
    setAttribute(element, "aria-selected", String(context.isSelected));
    setClass(element, "active", context.isActive);
    setClass(element, "loading", node.isLoading);
    element.style.setProperty("--depth", Math.min(node.depth, 12));
    setText(this.twist, node.hasChildren ? (node.isOpen ? "▾" : "▸") : "");
    this.#counts();
    this.#value(context);
    if (node.flashedMs !== this.flashedMs) {
      this.flashedMs = node.flashedMs;
      if (context.isFlashing) flash(element);
    }
  }

  #counts() {
    const { node } = this;
    const isBranch = node.hasChildren;
    setText(this.count, isBranch ? (node.topics === null ? "…" : node.topics ? count(node.topics) : "") : "");
    if (isBranch && node.topics) this.count.title = `${counted(node.topics, "retained topic")} here and below`;
    setText(this.sign, node.sign.replace("-", "−"));
    this.sign.className = `sign ${SIGNS[node.sign] ?? ""}`;
    this.sign.setAttribute("aria-label", SIGNS[node.sign] ?? "");
    setAttribute(this.sign, "role", node.sign ? "img" : null);
    const found = isBranch ? node.difference : null;
    const parts = found ? [["+", found.appeared], ["~", found.changed], ["−", found.vanished]] : [];
    const shown = parts.filter(([, number]) => number > 0);
    const key = shown.map(([sign, number]) => sign + number).join(" ");
    if (this.differences.dataset.key === key) return;
    this.differences.dataset.key = key;
    this.differences.replaceChildren(
      ...shown.map(([sign, number]) => el("span", { class: SIGNS[sign.replace("−", "-")] }, `${sign}${count(number)}`)),
    );
  }

  #value(context) {
    const { node } = this;
    const message = node.shown;
    setText(this.value.firstChild, message ? preview(message) : "");
    setClass(this.value, "vanished", node.sign === "-");
    setClass(this.sign, "again", node.sign === "~" && isSamePayload(node.message, node.other));
    const isSeenOnly = !node.message && node.seen !== null;
    setClass(this.element, "seen", isSeenOnly);
    setText(this.mark, message ? (message.qos ? `QoS ${message.qos}` : "") : "");
    if (isSeenOnly && message) setText(this.mark, "not retained");
    setText(this.rate, context.isLive && node.rate >= 0.05 ? `${rate(node.rate)}/s` : "");
    const atUs = message?.timestamp ? microseconds(message.timestamp) : (node.seen ? node.seen.atMs * 1000 : NaN);
    const isDated = message !== null && !Number.isNaN(atUs);
    setText(this.age, isDated ? duration((context.asOfMs ?? nowMs()) - atUs / 1000) : "");
    if (isDated) this.age.title = utc(atUs);
  }
}

function nameParts(name) {
  const characters = [...name];
  const end = characters.length > WHOLE_CHARACTERS_MAX ? characters.splice(-END_CHARACTERS).join("") : "";
  return [el("bdi", { class: "name-begin" }, characters.join("")), end && el("bdi", { class: "name-end" }, end)].filter(Boolean);
}

/** Published again with the same payload, as far as it is here. */
function isSamePayload(message, other) {
  return message?.payload_bytes === other?.payload_bytes && preview(message) === preview(other);
}

function setAttribute(element, name, value) {
  if (value === null) element.removeAttribute(name);
  else if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

function flash(element) {
  element.animate([{ backgroundColor: "var(--flash)" }, { backgroundColor: "transparent" }], FLASH_MS);
}
