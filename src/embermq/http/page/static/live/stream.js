// One stream of the newest message of each topic, begun again whenever it ends.

import { eventsOf } from "../core/event_stream.js";

export const EVERY_MS = 500;
const URL_PATH = `/api/v1/messages/latest?filter=%23&every_ms=${EVERY_MS}`;
const PAUSE_MIN_MS = 400;
const PAUSE_MAX_MS = 5000;
const REFUSED_PAUSE_MS = 5000;

/**
 * Read until `signal` says stop. Calls `tell` with `{kind: "latest", data}`, `{kind: "left-out"}`,
 * `{kind: "open"}`, `{kind: "lost"}`, `{kind: "refused", status}` or `{kind: "expired"}`; after the last one it ends.
 */
export async function readLatest(authorization, signal, tell) {
  let pauseMs = PAUSE_MIN_MS;
  while (!signal.aborted) {
    try {
      const response = await fetch(URL_PATH, {
        headers: { Authorization: authorization },
        cache: "no-store",
        credentials: "omit",
        signal,
      });
      if (response.status === 401) {
        tell({ kind: "expired" });
        return;
      }
      if (!response.ok) {
        tell({ kind: "refused", status: response.status });
        await new Promise((resolve) => setTimeout(resolve, REFUSED_PAUSE_MS));
        continue;
      }
      tell({ kind: "open" });
      pauseMs = PAUSE_MIN_MS;
      for await (const event of eventsOf(response)) {
        if (event.name === "latest") tell({ kind: "latest", data: JSON.parse(event.data) });
        // What this reader was too slow for is not repeated: everything that is shown must be loaded again.
        if (event.name === "left-out") tell({ kind: "left-out" });
      }
    } catch (error) {
      if (signal.aborted) return;
    }
    if (signal.aborted) return;
    tell({ kind: "lost" });
    await new Promise((resolve) => setTimeout(resolve, pauseMs));
    pauseMs = Math.min(pauseMs * 1.6, PAUSE_MAX_MS);
  }
}
