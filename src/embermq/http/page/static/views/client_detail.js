// One client: its connection, its session, what it is owed, and what it subscribes to.

import { isAborted } from "../core/api.js";
import { nowUs } from "../core/clock.js";
import { el, show } from "../core/dom.js";
import { oneAtATime } from "../core/latest_run.js";
import { count, instant, longDuration, microseconds, middleCut, rate, size, utc, visible } from "../core/text.js";

const REFRESH_MS = 2000;
const SUBSCRIPTIONS_MAX = 200;

/** Open a dialog with all that is known of a client. */
export function showClient(api, clientId) {
  const close = el("button", { type: "button", onclick: () => dialog.close() }, "Close");
  const body = el("div", { class: "client-detail", tabindex: "0", role: "region", "aria-labelledby": "client-title" }, el("p", { class: "hint" }, "Loading …"));
  const dialog = el("dialog", { "aria-labelledby": "client-title", onclose: closed }, el("h2", { id: "client-title" }, middleCut(visible(clientId), 80)), body, el("div", { class: "buttons" }, close));
  const rates = new Rates();
  const load = oneAtATime(() => draw(api, clientId, body, rates));
  const timer = setInterval(load, REFRESH_MS);
  function closed() {
    clearInterval(timer);
    dialog.remove();
  }
  document.body.append(dialog);
  dialog.showModal();
  close.focus();
  load();
}

async function draw(api, clientId, body, rates) {
  try {
    const [clients, sessions, subscriptions] = await Promise.all([
      api.get("clients", { client_id: clientId }), api.get("sessions", { client_id: clientId }), api.get("subscriptions", { client_id: clientId, limit: SUBSCRIPTIONS_MAX }),
    ]);
    show(body, connection(clients.items[0], rates), session(sessions.items[0]), filters(subscriptions));
  } catch (error) {
    if (!isAborted(error)) show(body, el("p", { class: "failure" }, error.message));
  }
}

function facts(title, pairs) {
  return [el("h3", {}, title), el("dl", { class: "details" }, pairs.filter(Boolean).map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]))];
}

function time(timestamp) {
  const us = microseconds(timestamp);
  return el("time", { title: utc(us) }, instant(us, nowUs()));
}

/** Messages per second between two answers. */
class Rates {
  #last = null;

  of(client) {
    const now = { at: performance.now(), received: client.received, sent: client.sent };
    const last = this.#last;
    this.#last = now;
    if (!last || last.received > now.received || last.sent > now.sent) return "–";
    const perSecond = (name) => rate(((now[name] - last[name]) * 1000) / (now.at - last.at));
    return `${perSecond("received")} in, ${perSecond("sent")} out per second`;
  }
}

function connection(client, rates) {
  if (!client) return [el("h3", {}, "Connection"), el("p", { class: "hint" }, "Not connected.")];
  return facts("Connection", [
    ["user", visible(client.user_name) || "–"],
    ["address", `${client.address}, listener ${client.listener}`],
    ["protocol", `${client.protocol}, keep alive ${client.keep_alive_s} s`],
    ["connected since", time(client.since)],
    ["messages", `${count(client.received)} from it, ${count(client.sent)} to it`],
    ["rates now", rates.of(client)],
    ["in flight", `${count(client.in_flight)}, the window is ${count(client.window)} now`],
    ["queued", `${count(client.queued)}, ${size(client.queued_bytes)} in memory`],
    ["sent and not read", size(client.unread_bytes)],
    ["slowed by", client.slowed_by.length ? el("span", { class: "warning" }, client.slowed_by.join(", ")) : "nothing"],
  ]);
}

function session(one) {
  if (!one) return [el("h3", {}, "Session"), el("p", { class: "hint" }, "It has no session.")];
  return facts("Session", [
    ["persistent", one.is_persistent ? "yes" : "no"],
    ["expires", one.expires ? time(one.expires) : one.expires_s === undefined ? "never" : one.expires_s ? `${longDuration(one.expires_s * 1000)} after its connection` : "with its connection"],
    one.disconnected_since && ["away since", time(one.disconnected_since)],
    one.last_end && ["last connection ended by", visible(one.last_end)],
    ["owed", `${count(one.owed)} messages`],
    ["dropped", `${count(one.dropped)} messages`],
    one.oldest_owed_offset && ["oldest owed", `offset ${count(one.oldest_owed_offset)}; ${size(one.log_bytes)} of the log are kept for it`],
  ]);
}

function filters(page) {
  const rows = page.items.map((one) => el("li", {}, el("bdi", {}, middleCut(visible(one.filter), 70)), el("span", { class: "hint" }, `QoS ${one.qos}`)));
  return [el("h3", {}, `Subscriptions${page.next ? `, the first ${page.items.length}` : ""}`), rows.length ? el("ol", { class: "filters" }, rows) : el("p", { class: "hint" }, "none")];
}
