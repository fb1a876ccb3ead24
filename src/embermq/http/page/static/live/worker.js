// A worker that all pages of one browser share: a browser opens only six connections to a server, so twenty pages
// must not have a stream each. Pages with the same login share one.

import { readLatest } from "./stream.js";

/** A page that says nothing for so long is gone; browsers slow down the timers of hidden pages to one a minute. */
const SILENCE_MAX_MS = 200_000;

/** Authorization -> {pages: Map(port -> when it last spoke), stop, last: the last state} */
const streams = new Map();

onconnect = (event) => {
  const port = event.ports[0];
  port.onmessage = ({ data }) => {
    if (data.kind === "leave") leave(port);
    else join(port, data.authorization);
  };
};

function join(port, authorization) {
  let stream = streams.get(authorization);
  if (stream?.pages.has(port)) {
    stream.pages.set(port, Date.now());
    return;
  }
  leave(port);
  if (!stream) {
    stream = { pages: new Map(), stop: new AbortController(), last: null };
    streams.set(authorization, stream);
    readLatest(authorization, stream.stop.signal, (told) => tell(authorization, stream, told));
  }
  stream.pages.set(port, Date.now());
  if (stream.last) port.postMessage(stream.last);
}

function tell(authorization, stream, told) {
  if (told.kind !== "latest" && told.kind !== "left-out") stream.last = told;
  for (const port of stream.pages.keys()) port.postMessage(told);
  if (told.kind === "expired") streams.delete(authorization);
}

function leave(port) {
  for (const [authorization, stream] of streams) {
    if (stream.pages.delete(port) && !stream.pages.size) {
      stream.stop.abort();
      streams.delete(authorization);
    }
  }
}

setInterval(() => {
  for (const stream of [...streams.values()]) {
    for (const [port, spokeMs] of [...stream.pages]) {
      if (Date.now() - spokeMs > SILENCE_MAX_MS) leave(port);
    }
  }
}, 30_000);
