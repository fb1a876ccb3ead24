// The connected clients: who is slow, who is held back, and ending a connection.

import { nowMs } from "../core/clock.js";
import { ask, notice } from "../core/dialog.js";
import { el } from "../core/dom.js";
import { count, counted, duration, microseconds, middleCut, size, utc, visible } from "../core/text.js";
import { showClient } from "./client_detail.js";
import { Listing } from "./listing.js";

export function clientsView(api, who, element) {
  const listing = new Listing(api, element, {
    path: "clients",
    title: "Clients",
    nothing: "No client is connected.",
    keyOf: (client) => client.client_id,
    searchIn: (client) => `${client.client_id} ${client.user_name} ${client.address}`,
    summary: (clients, isMore) => summary(clients, isMore),
    columns: [
      { name: "Client", isKept: true, of: (one) => detailButton(api, one.client_id), by: (one) => one.client_id },
      { name: "User", of: (one) => visible(one.user_name) || "–", by: (one) => one.user_name },
      { name: "Address", of: (one) => one.address, by: (one) => one.address },
      { name: "Protocol", of: (one) => one.protocol, by: (one) => one.protocol },
      { name: "Connected", of: (one) => ago(one.since), by: (one) => one.since },
      { name: "Subscriptions", isNumber: true, of: (one) => count(one.subscriptions), by: (one) => one.subscriptions },
      { name: "In flight", isNumber: true, of: (one) => count(one.in_flight), by: (one) => one.in_flight },
      { name: "Queued", isNumber: true, of: (one) => count(one.queued), by: (one) => one.queued },
      { name: "Unread", isNumber: true, of: (one) => size(one.unread_bytes), by: (one) => one.unread_bytes },
      { name: "Slowed by", of: (one) => slowed(one.slowed_by), by: (one) => one.slowed_by.join() },
      who.role === "operator" && { name: "", isKept: true, of: (one) => disconnectButton(api, one, () => listing.load()) },
    ].filter(Boolean),
  });
  return listing;
}

function summary(clients, isMore) {
  const slow = clients.filter((client) => client.slowed_by.length);
  const first = isMore ? `The first ${counted(clients.length, "client")}.` : `${counted(clients.length, "client")} connected.`;
  if (!slow.length) return `${first} None is slowed.`;
  return [first, " ", el("strong", { class: "warning" }, `${counted(slow.length, "client")} slowed: `), visible(slow.slice(0, 3).map((one) => one.client_id).join(", ")), slow.length > 3 ? " …" : ""];
}

/** Its name opens what is known of it. */
export function detailButton(api, clientId) {
  return el("button", { type: "button", class: "quiet small link", title: "Connection, session and subscriptions", onclick: () => showClient(api, clientId) }, named(clientId));
}

export function named(clientId) {
  return el("bdi", { class: "client", title: visible(clientId) }, middleCut(visible(clientId), 48));
}

export function ago(timestamp) {
  const us = microseconds(timestamp);
  return el("time", { title: utc(us) }, duration(nowMs() - us / 1000));
}

function slowed(reasons) {
  if (!reasons.length) return "–";
  return el("span", { class: "warning" }, reasons.join(", "));
}

function disconnectButton(api, client, onDone) {
  return el("button", { type: "button", class: "danger small", "aria-label": `Disconnect ${visible(client.client_id)}`, onclick: () => disconnect(api, client, onDone) }, "Disconnect");
}

async function disconnect(api, client, onDone) {
  const isSure = await ask({
    title: `Disconnect ${middleCut(visible(client.client_id), 60)}?`,
    effects: [
      "Its connection ends now. It may connect again at once.",
      "Its will, if it has one, is published.",
      client.is_persistent ? "Its session stays: what it is owed is kept for it." : "Its session is not persistent: subscriptions and queued messages are gone.",
    ],
    action: "Disconnect",
  });
  if (!isSure) return;
  try {
    const answer = await api.post("clients/disconnect", { client_ids: [client.client_id] });
    notice(answer.disconnected ? `${visible(client.client_id)} is disconnected.` : `${visible(client.client_id)} was not connected any more.`);
  } catch (error) {
    notice(`Not disconnected: ${error.message}`, true);
  }
  onDone();
}
