// What the server knows of one topic at the instant that is shown.

import { isComparing, state } from "../core/state.js";
import { asked } from "../core/text.js";

export const SHOWN_BYTES = 64 * 1024;
const VALUES_MAX = 200;
const VALUE_BYTES = 512;

/** `{topic, message, other, values, isAllValues}`; `message` null: nothing is retained. */
export async function loadTopic(api, topic, signal) {
  const as_of = state.at === null ? null : asked(state.at);
  const [message, other, page] = await Promise.all([
    retained(api, topic, as_of, signal),
    isComparing() ? retained(api, topic, asked(state.from), signal) : null,
    values(api, topic, as_of, signal),
  ]);
  return { topic, message, other, values: page.items, isAllValues: !page.next };
}

async function retained(api, topic, as_of, signal) {
  const page = await api.get("retained", { filter: topic, as_of, payload_bytes: SHOWN_BYTES, limit: 1 }, signal);
  return page.items[0] ?? null;
}

async function values(api, topic, until, signal) {
  try {
    return await api.get("topic/values", { topic, until, limit: VALUES_MAX, payload_bytes: VALUE_BYTES }, signal);
  } catch (error) {
    // A server without a log has no history, but still the message.
    if (error.status === 409 || error.status === 410) return { items: [] };
    throw error;
  }
}

/** The message with its whole payload. */
export async function loadWhole(api, topic) {
  return await api.get("retained/message", { topic, as_of: state.at === null ? null : asked(state.at) });
}
