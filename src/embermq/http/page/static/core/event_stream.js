// Server-sent events over fetch, so that the Authorization header goes with the request.

const EVENT_CHARACTERS_MAX = 32 * 1024 * 1024;

/** Yields `{name, data}` until the stream ends. */
export async function* eventsOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let buffered = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      buffered += value;
      if (buffered.length > EVENT_CHARACTERS_MAX) throw new Error("an event is too long");
      let end;
      while ((end = buffered.indexOf("\n\n")) >= 0) {
        const event = parsed(buffered.slice(0, end));
        buffered = buffered.slice(end + 2);
        yield event;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function parsed(block) {
  let name = "message";
  const data = [];
  for (const line of block.split("\n")) {
    if (line.startsWith("event:")) name = line.slice(6).trim();
    else if (line.startsWith("data:")) data.push(line.slice(5).trimStart());
  }
  return { name, data: data.join("\n") };
}
