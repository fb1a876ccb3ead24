// The alerts of the settings: what each rule says, what it is now, and whom a change is told. A part of Health.

import { nowUs } from "../core/clock.js";
import { el } from "../core/dom.js";
import { shownNumber } from "../core/plot.js";
import { duration, instant, microseconds, size, utc, visible } from "../core/text.js";

const ORDER = ["firing", "no value", "ok", undefined];

export function alertsPart(alerts) {
  const heads = ["Alert", "Rule", "State", "Since", "Value", "Told to"];
  const sorted = [...alerts].sort((a, b) => ORDER.indexOf(a.state) - ORDER.indexOf(b.state));
  return el("section", { class: "drops alerts" }, el("h3", {}, "Alerts"), alerts.length
    ? el("div", { class: "table-frame", tabindex: "0", role: "region", "aria-label": "Alerts, table" },
      el("table", {}, el("thead", {}, el("tr", {}, heads.map((name) => el("th", { scope: "col" }, name)))), el("tbody", {}, sorted.map(row))))
    : el("p", { class: "hint" }, "There is no rule. ", el("code", {}, "[[server.alerts]]"), " in the settings makes one, such as ",
      el("code", {}, "when = \"plant/7/status is silent for 5m\""), "."));
}

function row(alert) {
  const told = [alert.topic && visible(alert.topic), alert.webhook_host && `webhook at ${visible(alert.webhook_host)}`].filter(Boolean);
  const cells = {
    Alert: el("strong", {}, visible(alert.name)),
    Rule: el("code", {}, visible(alert.when)),
    State: state(alert),
    Since: alert.since ? since(microseconds(alert.since)) : "–",
    Value: value(alert),
    "Told to": [told.join(", ") || "this page only", alert.untold && el("p", { class: "warning" }, visible(alert.untold))],
  };
  return el("tr", {}, Object.entries(cells).map(([name, cell]) => el("td", { "data-name": name }, cell)));
}

function state(alert) {
  if (alert.problem) return el("span", { class: "warning" }, visible(alert.problem));
  if (alert.state === "firing") return el("strong", { class: "warning" }, "firing");
  return alert.state ?? "not checked yet";
}

function since(us) {
  return el("time", { title: utc(us) }, `${instant(us, nowUs())}, ${duration((nowUs() - us) / 1000)} ago`);
}

function value(alert) {
  if (alert.value === undefined) return "–";
  if (alert.when.includes(" is silent for ")) return `silent for ${duration(alert.value * 1000)}`;
  if (/_bytes\b/.test(alert.when)) return size(alert.value);
  return `${shownNumber(alert.value)}${/_total\b/.test(alert.when) ? " per second" : ""}`;
}
