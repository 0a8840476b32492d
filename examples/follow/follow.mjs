// Follows a set by its event stream, and prints each change as a line of JSON. Its cursor is in a file, from which it
// resumes after outages and restarts. Node 18 or newer, standard library only.
//
//   node follow.mjs http://127.0.0.1:8080/sets/demo/changes cursor.txt
//
// (Browsers have EventSource: see page.html. Node has it since version 22, behind a flag.)
import { closeSync, existsSync, fstatSync, fsyncSync, openSync, readFileSync, renameSync, writeFileSync, writeSync } from "node:fs";
import { dirname } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

const [topic, path] = process.argv.slice(2);
let cursor = existsSync(path) ? readFileSync(path, "utf8").trim() : "";

const never = new Int32Array(new SharedArrayBuffer(4));

function print(text) { // returns when everything is written and, if standard output is a file, durable; console.log ignores errors
  for (let rest = Buffer.from(text); rest.length; ) {
    try {
      rest = rest.subarray(writeSync(1, rest));
    } catch (e) {
      if (e.code !== "EAGAIN") throw e;
      Atomics.wait(never, 0, 0, 10); // the pipe is full
    }
  }
  if (fstatSync(1).isFile()) fsyncSync(1);
}

function syncDirectory(name) {
  const directory = openSync(name, "r");
  try {
    fsyncSync(directory);
  } catch (e) {
    if (e.code !== "EINVAL") throw e; // the file system does not support it
  } finally {
    closeSync(directory);
  }
}

function storeCursor(next) { // the file always has this cursor or the previous one, never a part of one
  const file = openSync(path + ".new", "w");
  writeFileSync(file, next + "\n");
  fsyncSync(file);
  closeSync(file);
  renameSync(path + ".new", path);
  if (process.platform !== "win32") syncDirectory(dirname(path)); // otherwise a crash of the machine may leave no file
  cursor = next;
}

function handle({ event, data }) {
  const m = JSON.parse(data);
  if (event === "gone") throw new Gone();
  if (m.diverged) console.error("the hub has lost its newest changes; positions may repeat");
  try {
    print((m.changes ?? []).map((change) => JSON.stringify(change) + "\n").join("")); // process the changes, then store the cursor
    if (m.cursor && m.cursor !== cursor) storeCursor(m.cursor);
  } catch (e) { // a part of a line may be printed, which a retry would not repair
    console.error(`store changes: ${e.message}`);
    process.exit(1);
  }
}

class Gone extends Error {
  message = "the hub no longer has the changes after the cursor; read a baseline, and start with its cursor";
}

// Yields the events of a stream. An event ends with an empty line.
async function* events(body) {
  let text = "", event = "message", data = [];
  for await (const part of body.pipeThrough(new TextDecoderStream())) {
    const lines = (text + part).split("\n");
    text = lines.pop();
    for (const line of lines.map((l) => l.replace(/\r$/, ""))) {
      const [, field, value] = /^([^:]*):? ?(.*)$/.exec(line);
      if (line === "") {
        if (data.length) yield { event, data: data.join("\n") };
        event = "message";
        data = [];
      } else if (field === "data") data.push(value);
      else if (field === "event") event = value;
    }
  }
}

const headers = { Accept: "text/event-stream" };
if (process.env.RSHUB_TOKEN) headers.Authorization = `Bearer ${process.env.RSHUB_TOKEN}`;
for (let tries = 0; ; tries++) {
  let after = 0; // seconds of Retry-After
  try {
    const answer = await fetch(`${topic}?since=${cursor || "start"}`, { headers });
    if (answer.status === 410) throw new Gone();
    if (answer.status < 500 && answer.status !== 200 && answer.status !== 429) {
      console.error(`refused by the hub: ${answer.status} ${await answer.text()}`);
      process.exit(2);
    }
    after = Number(answer.headers.get("Retry-After")) || 0;
    if (!answer.ok) throw new Error(`got status ${answer.status} from the hub`);
    for await (const e of events(answer.body)) {
      handle(e);
      tries = 0;
    }
  } catch (e) {
    if (e instanceof Gone || e instanceof SyntaxError) {
      console.error(e.message);
      process.exit(3);
    }
    console.error(`${e.message}; retrying`);
  }
  await sleep(Math.max(after * 1000, Math.min(30_000, 250 * 2 ** tries) * (0.5 + Math.random() / 2)));
}
