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
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      waiting += value;
      let begin = 0;
      for (let end; (end = waiting.indexOf("\n\n", begin)) >= 0; begin = end + 2) {
        let type = "message", data = "";
        for (const line of waiting.slice(begin, end).split("\n")) {
          if (line.startsWith("data: ")) data += line.slice(6);
          else if (line.startsWith("event: ")) type = line.slice(7);
        }
        yield { type, data };
      }
      waiting = waiting.slice(begin);
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

// longHidden is how long a tab may be hidden before it lets go of its connection. Browsers
// have only a few connections to a hub, for all tabs together.
const longHidden = 60_000;

// sight returns a signal that ends when the tab was hidden for long, or with the other
// signal, and what undoes that.
function sight(signal) {
  const control = new AbortController();
  let timer;
  const look = () => {
    clearTimeout(timer);
    if (document.hidden) timer = setTimeout(() => control.abort(), longHidden);
  };
  const end = () => control.abort();
  document.addEventListener("visibilitychange", look);
  signal.addEventListener("abort", end);
  look();
  return { signal: control.signal, undo: () => { clearTimeout(timer); document.removeEventListener("visibilitychange", look); signal.removeEventListener("abort", end); } };
}

// visible waits until the tab is not hidden, or until the signal.
const visible = (signal) => new Promise((done) => {
  const look = () => {
    if (document.hidden && !signal.aborted) return;
    document.removeEventListener("visibilitychange", look);
    done();
  };
  document.addEventListener("visibilitychange", look);
  signal.addEventListener("abort", look, { once: true });
  look();
});

// follow calls on.batch with each batch of changes behind a cursor that passes a filter
// (prefix, change, type), until the signal. on.state is told what the stream does: "live", "away" and
// why, "gone" if the hub no longer has the changes behind the cursor, or "refused" and why. After the last two it ends. It
// goes on behind the last batch when the hub comes back.
export async function follow(set, since, filter, on, signal) {
  for (let wait = 250; !signal.aborted; wait = Math.min(wait * 2, 5000)) {
    await visible(signal);
    if (signal.aborted) return;
    const seen = sight(signal);
    try {
      const answer = await request(`sets/${set}/changes`, { parameters: { since, ...filter }, accept: "text/event-stream", signal: seen.signal });
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
      if (seen.signal.aborted) {
        wait = 125;
        on.state("away", "The tab was hidden.");
        continue;
      }
      if (e instanceof Problem && e.status === 410) return on.state("gone");
      if (e instanceof Problem && e.status >= 400 && e.status < 500 && e.status !== 429) return on.state("refused", e.message);
      on.state("away", e instanceof Problem ? e.message : "The connection to the hub broke.");
    } finally {
      seen.undo();
    }
    await pause(wait * (0.75 + Math.random() / 2), signal);
  }
}
