// The bridges to other brokers: whether each is connected, how far it is, and what went wrong last. A part of Health.

import { nowUs } from "../core/clock.js";
import { el } from "../core/dom.js";
import { count, duration, microseconds, utc, visible } from "../core/text.js";

const HEADS = ["Bridge", "State", "Lag", "Sent", "Received", "Lost", "Last error"];

/** Nothing where there are none: most servers have no bridge. */
export function bridgesPart(bridges) {
  return bridges.length > 0 && el("section", { class: "drops bridges" }, el("h3", {}, "Bridges"),
    el("div", { class: "table-frame", tabindex: "0", role: "region", "aria-label": "Bridges, table" },
      el("table", {}, el("thead", {}, el("tr", {}, HEADS.map((name) => el("th", { scope: "col" }, name)))), el("tbody", {}, bridges.map(row)))));
}

function row(bridge) {
  const cells = {
    Bridge: [el("strong", {}, visible(bridge.name)), " to ", el("bdi", {}, visible(bridge.address))],
    State: state(bridge),
    Lag: el("span", { title: "Records of the log that it has not passed" }, count(bridge.lag)),
    Sent: count(bridge.sent),
    Received: count(bridge.received),
    Lost: bridge.lost_records ? el("strong", { class: "warning" }, count(bridge.lost_records)) : "0",
    "Last error": visible(bridge.error) || "–",
  };
  return el("tr", {}, Object.entries(cells).map(([name, cell]) => el("td", { "data-name": name }, cell)));
}

function state(bridge) {
  const since = microseconds(bridge.since);
  const said = `${bridge.state} for ${duration((nowUs() - since) / 1000)}`;
  return el("time", { title: `since ${utc(since)}`, class: bridge.state === "waiting" ? "warning" : null }, said);
}
