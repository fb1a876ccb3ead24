// The nodes of the cluster: who serves clients, and how far each other one is behind. A part of Health.

import { nowUs } from "../core/clock.js";
import { el } from "../core/dom.js";
import { count, duration, microseconds, utc, visible } from "../core/text.js";

const HEADS = ["Node", "Role", "Reachable at", "Position", "Lag", "Heard of"];

/** Nothing for a single server. */
export function nodesPart(nodes) {
  if (!nodes.length) return null;
  const own = nodes.find((node) => node.is_this);
  return el("section", { class: "drops nodes" }, el("h3", {}, "Nodes of the cluster"),
    own?.state === "gone" && el("p", { class: "warning", role: "alert" }, "This node reads nothing from the shared log: what is said of the others may be old."),
    el("div", { class: "table-frame", tabindex: "0", role: "region", "aria-label": "Nodes of the cluster, table" },
      el("table", {}, el("thead", {}, el("tr", {}, HEADS.map((name) => el("th", { scope: "col" }, name)))), el("tbody", {}, nodes.map(row)))));
}

function row(node) {
  const cells = {
    Node: [el("strong", {}, String(node.node)), node.is_this && el("span", { class: "hint" }, " this server")],
    Role: role(node.state),
    "Reachable at": visible(node.reachable_at) || "–",
    Position: node.next_offset === undefined ? "–" : `offset ${count(node.next_offset)}`,
    Lag: node.lag === undefined || node.state === "active" ? "–" : node.lag ? `${count(node.lag)} records` : "none",
    "Heard of": node.heard ? heard(microseconds(node.heard)) : "–",
  };
  return el("tr", {}, HEADS.map((name) => el("td", { "data-name": name }, cells[name])));
}

function role(state) {
  if (state === "active") return el("strong", { class: "there" }, "active");
  return state === "standby" ? "standby" : el("strong", { class: "warning" }, state);
}

function heard(us) {
  return el("time", { title: utc(us) }, `${duration((nowUs() - us) / 1000)} ago`);
}
