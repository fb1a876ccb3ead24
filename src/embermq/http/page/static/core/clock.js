// The server's clock as this page knows it. A browser whose clock is wrong still asks for instants that exist.

const TOLERANCE_MS = 2500;
let skewMs = 0;

/** Learn from the Date header of an answer, which has whole seconds. */
export function learn(dateHeader) {
  const sent = Date.parse(dateHeader ?? "");
  if (Number.isNaN(sent)) return;
  const difference = sent + 500 - Date.now();
  if (Math.abs(difference - skewMs) > TOLERANCE_MS) skewMs = Math.abs(difference) > TOLERANCE_MS ? difference : 0;
}

export function nowMs() {
  return Date.now() + skewMs;
}

export function nowUs() {
  return nowMs() * 1000;
}
