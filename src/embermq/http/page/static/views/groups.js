// The share groups: members, and what none of them has acknowledged.

import { el } from "../core/dom.js";
import { count, counted, middleCut, size, visible } from "../core/text.js";
import { Listing } from "./listing.js";

const MEMBERS_SHOWN = 8;

export function groupsView(api, element) {
  return new Listing(api, element, {
    path: "share-groups",
    title: "Share groups",
    nothing: "There is no share group. A subscription to $share/NAME/FILTER makes one.",
    keyOf: (group) => group.filter,
    searchIn: (group) => `${group.filter} ${group.members.join(" ")}`,
    summary: (groups) => summary(groups),
    columns: [
      { name: "Group", of: (one) => el("bdi", { class: "client", title: visible(one.filter) }, middleCut(visible(one.filter), 64)), by: (one) => one.filter },
      { name: "Members", isNumber: true, of: (one) => count(one.members.length), by: (one) => one.members.length },
      { name: "Connected", isNumber: true, of: (one) => count(one.connected), by: (one) => one.connected },
      { name: "Owed", isNumber: true, of: (one) => count(one.owed), by: (one) => one.owed },
      { name: "Holds of the log", isNumber: true, of: (one) => (one.log_bytes ? size(one.log_bytes) : "–"), by: (one) => one.log_bytes },
      { name: "Who", of: (one) => visible(one.members.slice(0, MEMBERS_SHOWN).join(", ")) + (one.members.length > MEMBERS_SHOWN ? " …" : "") },
    ],
  });
}

function summary(groups) {
  const idle = groups.filter((group) => group.connected === 0 && group.owed > 0);
  const first = `${counted(groups.length, "share group")}.`;
  return idle.length ? [first, " ", el("strong", { class: "warning" }, `${counted(idle.length, "group")} with messages and no connected member.`)] : first;
}
