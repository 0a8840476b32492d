// Follows every set of a hub on one WebSocket, and prints each change with its set as a line of JSON. The cursors of all
// sets are in a JSON file, from which it resumes after outages and restarts. Node 22, or Node 20 with a flag:
//
//   node every.mjs http://127.0.0.1:8080 cursors.json
//   node --experimental-websocket every.mjs http://127.0.0.1:8080 cursors.json
//
// RSHUB_TOKEN has the token, if the hub requires one. A WebSocket cannot send it, so it is exchanged for a ticket.
import { closeSync, existsSync, fstatSync, fsyncSync, openSync, readFileSync, renameSync, writeFileSync, writeSync } from "node:fs";
import { dirname } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

const [hub, path] = process.argv.slice(2);
if (typeof WebSocket === "undefined") {
  console.error("this Node has no WebSocket; use Node 22, or node --experimental-websocket");
  process.exit(2);
}
const cursors = existsSync(path) ? JSON.parse(readFileSync(path, "utf8")) : {}; // by set
let timer; // of the next store; undefined if no cursor has changed
let tries = 0;

const never = new Int32Array(new SharedArrayBuffer(4));

function print(text) { // returns when everything is written; console.log ignores errors
  for (let rest = Buffer.from(text); rest.length; ) {
    try {
      rest = rest.subarray(writeSync(1, rest));
    } catch (e) {
      if (e.code !== "EAGAIN") throw e;
      Atomics.wait(never, 0, 0, 10); // the pipe is full
    }
  }
}

function sync(name, flags) {
  const file = openSync(name, flags);
  try {
    fsyncSync(file);
  } catch (e) {
    if (e.code !== "EINVAL") throw e; // the file system does not support it
  } finally {
    closeSync(file);
  }
}

function store() { // the file always has these cursors or the previous ones, and never more than what was printed
  timer = undefined;
  if (fstatSync(1).isFile()) fsyncSync(1);
  writeFileSync(path + ".new", JSON.stringify(cursors) + "\n");
  sync(path + ".new", "r+");
  renameSync(path + ".new", path);
  if (process.platform !== "win32") sync(dirname(path), "r"); // otherwise a crash of the machine may leave no file
}

function orExit(work) { // a part of a line may be printed, which a retry would not repair
  try {
    work();
  } catch (e) {
    console.error(`store changes: ${e.message}`);
    process.exit(1);
  }
}

// handle handles a message of the hub. If it throws, reconnect.
function handle({ set, after, cursor, changes, diverged, error }) {
  if (error) {
    if (!set || set === "*" || error.status === 429 || error.status >= 500) throw new Error(`${set}: ${error.detail}`);
    console.error(`set ${set} is not followed: ${error.status} ${error.detail}`); // 410: read a baseline, and put its cursor into the file
    if (error.status !== 404) return;
    delete cursors[set]; // if the set is created again, it begins at its start
  } else if (changes) {
    if (cursors[set] && cursors[set] !== after && !diverged) throw new Error(`set ${set}: got changes after ${after}, want those after ${cursors[set]}`);
    if (diverged) console.error(`set ${set}: the hub has lost its newest changes; positions may repeat`);
    orExit(() => print(changes.map((change) => JSON.stringify({ set, ...change }) + "\n").join("")));
    cursors[set] = cursor; // process the changes, then store the cursor
  } else return;
  timer ??= setTimeout(() => orExit(store), 1000); // one write for many messages
}

// address returns the URL of the WebSocket, with a ticket if the hub requires one.
async function address() {
  const headers = process.env.RSHUB_TOKEN ? { Authorization: `Bearer ${process.env.RSHUB_TOKEN}` } : {};
  const answer = await fetch(`${hub}/ticket`, { method: "POST", headers, redirect: "error" });
  if (answer.status >= 400 && answer.status < 500 && answer.status !== 429) {
    console.error(`refused by the hub: ${answer.status} ${await answer.text()}`);
    process.exit(2);
  }
  if (!answer.ok) throw new Error(`got status ${answer.status} from the hub`);
  return hub.replace(/^http/, "ws") + "/changes" + new URL((await answer.json()).url).search;
}

// follow follows until the connection ends, and returns the reason. The hub's pings are answered by Node.
const follow = (url) => new Promise((resolve) => {
  const socket = new WebSocket(url, "rs.json");
  let failed = "";
  socket.onopen = () => {
    for (const set in cursors) if (set !== "*") socket.send(JSON.stringify({ follow: set, since: cursors[set] }));
    socket.send('{"follow":"*","since":"start"}'); // all other sets, including sets that are created later
  };
  socket.onmessage = ({ data }) => {
    if (failed) return;
    try {
      handle(JSON.parse(data));
      tries = 0;
    } catch (e) {
      failed = e.message;
      socket.close();
    }
  };
  socket.onerror = () => resolve("cannot reach the hub");
  socket.onclose = ({ code, reason }) => resolve(failed || `the connection ended: ${code} ${reason}`);
});

for (;;) {
  const why = await address().then(follow).catch((e) => e.message);
  console.error(`${why}; retrying`);
  await sleep(Math.min(30_000, 250 * 2 ** tries++) * (0.5 + Math.random() / 2));
}
