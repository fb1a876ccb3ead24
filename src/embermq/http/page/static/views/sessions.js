// The sessions: what each is owed, how much of the log it holds back, and ending one.

import { ask, notice } from "../core/dialog.js";
import { el } from "../core/dom.js";
import { count, counted, duration, longDuration, microseconds, middleCut, size, utc, visible } from "../core/text.js";
import { nowMs } from "../core/clock.js";
import { ago, detailButton, named } from "./clients.js";
import { Listing } from "./listing.js";

export function sessionsView(api, who, element) {
  const listing = new Listing(api, element, {
    path: "sessions",
    title: "Sessions",
    nothing: "There is no session.",
    keyOf: (session) => session.client_id,
    searchIn: (session) => `${session.client_id} ${session.user_name}`,
    summary: (sessions, isMore) => summary(sessions, isMore),
    columns: [
      { name: "Client", isKept: true, of: (one) => detailButton(api, one.client_id), by: (one) => one.client_id },
      { name: "User", of: (one) => visible(one.user_name) || "–", by: (one) => one.user_name },
      { name: "State", of: (one) => presence(one), by: (one) => one.disconnected_since ?? "" },
      { name: "Persistent", of: (one) => (one.is_persistent ? "yes" : "no"), by: (one) => one.is_persistent },
      { name: "Expires", of: (one) => expiry(one), by: (one) => one.expires ?? "z" },
      { name: "Subscriptions", isNumber: true, of: (one) => count(one.subscriptions), by: (one) => one.subscriptions },
      { name: "Owed", isNumber: true, of: (one) => count(one.owed), by: (one) => one.owed },
      { name: "Dropped", isNumber: true, of: (one) => count(one.dropped), by: (one) => one.dropped },
      { name: "Holds of the log", isNumber: true, of: (one) => (one.log_bytes ? size(one.log_bytes) : "–"), by: (one) => one.log_bytes },
      who.role === "operator" && { name: "", isKept: true, of: (one) => endButton(api, one, () => listing.load()) },
    ].filter(Boolean),
  });
  return listing;
}

function summary(sessions, isMore) {
  const first = isMore ? `The first ${counted(sessions.length, "session")}.` : `${counted(sessions.length, "session")}.`;
  const holder = sessions.reduce((most, one) => (one.log_bytes > (most?.log_bytes ?? 0) ? one : most), null);
  if (!holder) return `${first} None holds back the log.`;
  return [first, " ", named(holder.client_id), ` holds most of the log: ${size(holder.log_bytes)}, it is owed ${counted(holder.owed, "message")}.`];
}

function presence(session) {
  if (session.is_connected) return el("span", { class: "there" }, "connected");
  return el("span", {}, "away for ", ago(session.disconnected_since));
}

function expiry(session) {
  if (session.expires) {
    const us = microseconds(session.expires);
    return el("time", { title: utc(us) }, `in ${duration(us / 1000 - nowMs())}`);
  }
  if (session.expires_s === undefined || session.expires_s === null) return "never";
  return session.expires_s === 0 ? "with its connection" : `${longDuration(session.expires_s * 1000)} after its connection`;
}

function endButton(api, session, onDone) {
  return el("button", { type: "button", class: "danger small", "aria-label": `End the session of ${visible(session.client_id)}`, onclick: () => end(api, session, onDone) }, "End");
}

async function end(api, session, onDone) {
  const isSure = await ask({
    title: `End the session of ${middleCut(visible(session.client_id), 60)}?`,
    effects: [
      session.owed ? `${counted(session.owed, "message")} that it is owed will never be delivered to it.` : "It is owed no messages.",
      `Its ${counted(session.subscriptions, "subscription")} end${session.subscriptions === 1 ? "s" : ""}.`,
      session.is_connected ? "Its client is disconnected, and its will, if it has one, is published." : "If its client comes back, it begins with a new session.",
      "This cannot be taken back.",
    ],
    action: "End the session",
  });
  if (!isSure) return;
  try {
    const answer = await api.post("sessions/end", { client_ids: [session.client_id] });
    notice(answer.ended ? `The session of ${visible(session.client_id)} has ended.` : `${visible(session.client_id)} had no session any more.`);
  } catch (error) {
    notice(`Not ended: ${error.message}`, true);
  }
  onDone();
}
