// Where the rows of the tree come from: a branch of the retained topics, or the topics that a search finds.

import { isComparing, state } from "../core/state.js";
import { asked } from "../core/text.js";
import { PAGE_ROWS } from "./branches.js";

const PREVIEW_BYTES = 120;

/** The instants that the state asks for, as parameters of a request. */
export function instants() {
  return {
    as_of: state.at === null ? null : asked(state.at),
    compare_with: isComparing() ? asked(state.from) : null,
  };
}

/** Whether a search is for a topic filter; else it is for a word. */
export function isFilter(search) {
  return search.includes("#") || search.includes("+");
}

/** One page of a branch. `root` is the branch above all first levels. */
export async function loadBranch(api, node, cursor, signal) {
  const below = node.parent === null ? null : node.topic;
  return await api.get("tree", { below, ...instants(), limit: PAGE_ROWS, cursor, payload_bytes: PREVIEW_BYTES }, signal);
}

/** One page of what a search finds, in the shape of a branch: every topic is a row by its whole name. */
export async function loadFound(api, search, cursor, signal) {
  const asks = isFilter(search) ? { filter: search } : { word: search };
  const { as_of } = instants();
  const page = await api.get("tree/search", { ...asks, as_of, limit: PAGE_ROWS, cursor, payload_bytes: PREVIEW_BYTES }, signal);
  const items = page.items.map((message) => ({ level: message.topic, topic: message.topic, has_children: false, topics: 1, message }));
  return { items, next: page.next };
}

export async function countBelow(api, node, signal) {
  return await api.get("tree/count", { below: node.topic, ...instants() }, signal);
}
