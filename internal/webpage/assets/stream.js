// Follows a set by its event stream, and reconnects after outages.
import { request, Problem } from "./api.js";

const delay = (ms, signal) => new Promise((done) => {
  const timer = setTimeout(done, ms);
  signal.addEventListener("abort", () => { clearTimeout(timer); done(); }, { once: true });
});

// events yields the events of a response. The stream is read with fetch, because an EventSource
// cannot send a token and does not report why it failed.
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

// hiddenTimeout is the time after which a hidden tab closes its connection, in milliseconds.
// All tabs of a browser share a few connections to a hub.
const hiddenTimeout = 60_000;

// whileVisible returns a signal that is aborted with the given one, or when the tab has been
// hidden for hiddenTimeout, and a function that releases its listeners.
function whileVisible(signal) {
  const control = new AbortController();
  let timer;
  const update = () => {
    clearTimeout(timer);
    if (document.hidden) timer = setTimeout(() => control.abort(), hiddenTimeout);
  };
  const end = () => control.abort();
  document.addEventListener("visibilitychange", update);
  signal.addEventListener("abort", end);
  update();
  return { signal: control.signal, release: () => { clearTimeout(timer); document.removeEventListener("visibilitychange", update); signal.removeEventListener("abort", end); } };
}

// visible waits until the tab is visible, or signal is aborted.
const visible = (signal) => new Promise((done) => {
  const update = () => {
    if (document.hidden && !signal.aborted) return;
    document.removeEventListener("visibilitychange", update);
    done();
  };
  document.addEventListener("visibilitychange", update);
  signal.addEventListener("abort", update, { once: true });
  update();
});

// follow calls on.batch with each batch of changes after a cursor that match the filter (prefix,
// change, type), until signal is aborted. It reconnects after outages, and continues after the
// last batch. on.state receives the state of the stream: "live", "away" with a reason, "gone" if
// the hub no longer has the changes after the cursor, or "refused" with a reason. After the last
// two, follow returns.
export async function follow(set, since, filter, on, signal) {
  for (let wait = 250; !signal.aborted; wait = Math.min(wait * 2, 5000)) {
    await visible(signal);
    if (signal.aborted) return;
    const seen = whileVisible(signal);
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
      if (!signal.aborted) on.state("away", "The connection was closed.");
    } catch (e) {
      if (signal.aborted) return;
      if (seen.signal.aborted) {
        wait = 125;
        on.state("away", "The tab was hidden.");
        continue;
      }
      if (e instanceof Problem && e.status === 410) return on.state("gone");
      if (e instanceof Problem && e.status >= 400 && e.status < 500 && e.status !== 429) return on.state("refused", e.message);
      on.state("away", e instanceof Problem ? e.message : "The connection to the hub was lost.");
    } finally {
      seen.release();
    }
    await delay(wait * (0.75 + Math.random() / 2), signal);
  }
}
