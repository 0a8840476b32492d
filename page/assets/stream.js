// Follows a set by its event stream, through outages of the hub.
import { request, Problem } from "./api.js";

const pause = (ms, signal) => new Promise((done) => {
  const timer = setTimeout(done, ms);
  signal.addEventListener("abort", () => { clearTimeout(timer); done(); }, { once: true });
});

// events yields the data of the events in an answer. The stream is read with fetch,
// because an EventSource can send no token, and does not say why it failed.
async function* events(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let waiting = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    waiting += value;
    for (let end; (end = waiting.indexOf("\n\n")) >= 0; waiting = waiting.slice(end + 2)) {
      let type = "message", data = "";
      for (const line of waiting.slice(0, end).split("\n")) {
        if (line.startsWith("data: ")) data += line.slice(6);
        else if (line.startsWith("event: ")) type = line.slice(7);
      }
      yield { type, data };
    }
  }
}

// follow calls on.batch with each batch of changes behind a cursor that passes a filter
// (prefix, change, type), until the signal. on.state is told what the stream does: "live", "away" and
// why, "gone" if the hub no longer has the changes behind the cursor, or "refused" and why. After the last two it ends. It
// goes on behind the last batch when the hub comes back.
export async function follow(set, since, filter, on, signal) {
  for (let wait = 250; !signal.aborted; wait = Math.min(wait * 2, 5000)) {
    try {
      const answer = await request(`sets/${set}/changes`, { parameters: { since, ...filter }, accept: "text/event-stream", signal });
      on.state("live");
      for await (const e of events(answer)) {
        wait = 250;
        if (e.type === "gone") return on.state("gone");
        const batch = JSON.parse(e.data);
        since = batch.cursor;
        on.batch(batch);
      }
      if (!signal.aborted) on.state("away", "The connection ended.");
    } catch (e) {
      if (signal.aborted) return;
      if (e instanceof Problem && e.status === 410) return on.state("gone");
      if (e instanceof Problem && e.status >= 400 && e.status < 500 && e.status !== 429) return on.state("refused", e.message);
      on.state("away", e instanceof Problem ? e.message : "The connection to the hub broke.");
    }
    await pause(wait * (0.75 + Math.random() / 2), signal);
  }
}
