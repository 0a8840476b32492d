// A callback that appends the deliveries of a hub to a file. Another program reads the file. Node 18 or newer, standard
// library only.
//
//   CALLBACK_SECRET=... node receiver.mjs 127.0.0.1:9000 http://127.0.0.1:8080/sets/demo/changes spool.ndjson
//
// The file has a line for each delivery: {"mark", "missed", "changes"}. If "missed" is true, read a baseline. The mark of the
// last line says what was processed, as "POSITION/NUMBER", so only the file must survive a crash. NUMBER is that of the
// newest delivery; it is missing if the hub does not number deliveries.
import { createHmac, timingSafeEqual } from "node:crypto";
import { closeSync, fsyncSync, ftruncateSync, openSync, readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { dirname } from "node:path";

const [address, topic, path] = process.argv.slice(2);
const secret = process.env.CALLBACK_SECRET;
if (!secret || !path) throw new Error("usage: CALLBACK_SECRET=... node receiver.mjs HOST:PORT TOPIC FILE");
const maxDelivery = 16 << 20; // bytes of a delivery; a hub sends about 1 MiB

// Open the file and read the mark of its last line. A crash may leave a part of a line, which was not acknowledged.
const file = openSync(path, "a+");
const text = readFileSync(path);
const end = text.lastIndexOf(10) + 1;
ftruncateSync(file, end);
if (process.platform !== "win32") { // otherwise a crash of the machine may leave no file
  const directory = openSync(dirname(path), "r");
  fsyncSync(directory);
  closeSync(directory);
}
const last = text.subarray(0, end).toString().trimEnd().split("\n").pop();
let [mark, newest] = last ? readMark(String(JSON.parse(last).mark)) : [null, null]; // the position, and the number of the newest delivery

function readMark(text) { // older versions of this program stored the position alone
  const [, at, number] = /^(\d+)(?:\/(\d+))?$/.exec(text) ?? [];
  if (at === undefined) throw new Error(`invalid mark ${JSON.stringify(text)}`);
  return [Number(at), number === undefined ? null : BigInt(number)];
}

// Checks the signature of a body or query. For a day after a change of the secret, the hub signs with both secrets, so
// this receiver may get the new one at any time in that day.
const signed = (text, headers, name) => matches(text, headers[name]) || matches(text, headers["rs-former-signature"]);

// Checks one signature, which is ALGORITHM=HEX.
function matches(text, header = "") {
  const [algorithm, hex = ""] = header.split("=");
  if (!["sha256", "sha384", "sha512"].includes(algorithm)) return false;
  const right = createHmac(algorithm, secret).update(text).digest();
  const given = Buffer.from(hex, "hex");
  return given.length === right.length && timingSafeEqual(given, right);
}

// Checks that a GET of the hub is signed and recent.
function checkQuery(request, query) {
  const age = Math.abs(Date.now() - Date.parse(query.get("rs.time")));
  return age < 5 * 60_000 && signed(request.url.slice(request.url.indexOf("?") + 1), request.headers, "rs-signature");
}

// The hub signed the body, so it is the hub's XML: attributes in double quotes, no CDATA, no comments. For other XML, use a
// real parser.
const entities = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'" };
function unescape(s) {
  return s.replace(/&(?:#x([0-9a-fA-F]+)|#(\d+)|(\w+));/g, (all, hex, number, name) =>
    name ? entities[name] ?? all : String.fromCodePoint(hex ? parseInt(hex, 16) : Number(number)));
}
const attribute = (tag, name) => {
  const found = new RegExp(`\\s${name}="([^"]*)"`).exec(tag);
  return found ? unescape(found[1]) : undefined;
};
const position = (cursor) => Number(cursor.split("-")[0]);

function read(body) {
  const top = /<rs:md [^>]*>/.exec(body)?.[0];
  if (!top || !attribute(top, "h:cursor")) throw new Error("not a change notification of rshub: h:cursor is missing");
  const changes = [...body.matchAll(/<url>([\s\S]*?)<\/url>/g)].map(([, url]) => {
    const md = /<rs:md [^>]*>/.exec(url)[0];
    return {
      position: Number(attribute(md, "h:position")),
      loc: unescape(/<loc>([^<]*)<\/loc>/.exec(url)[1]),
      change: attribute(md, "change"),
      datetime: attribute(md, "datetime"),
      lastmod: /<lastmod>([^<]*)</.exec(url)?.[1],
      hash: attribute(md, "hash"),
    };
  });
  const delivery = attribute(top, "h:delivery");
  if (delivery !== undefined && !(/^\d+$/.test(delivery) && BigInt(delivery) < 2n ** 63n)) throw new Error(`invalid h:delivery ${JSON.stringify(delivery)}`);
  const number = delivery === undefined ? null : BigInt(delivery); // a Number is exact only below 2^53
  return { changes, number, gap: attribute(top, "h:gap"), after: position(attribute(top, "h:after") ?? "0"), to: position(attribute(top, "h:cursor")), diverged: attribute(top, "h:diverged") === "true" };
}

// Stores new changes. Order and gap are in the body, which the signature covers. A failed write ends the program: the file
// may then have a part of the line, which the next start removes.
function store(d, header) {
  if (newest !== null && d.number !== null && d.number < newest) return; // a replay
  const gap = d.number === null ? header : d.gap; // older hubs have it only in the header, which is not signed
  const higher = newest === null || (d.number !== null && d.number > newest);
  const missed = (higher && Boolean(gap)) || (mark !== null && d.after > mark);
  const from = mark === null || (higher && (gap || d.diverged)) ? d.after : mark; // positions may start again here
  const to = Math.max(from, d.to);
  const number = higher ? d.number : newest;
  const changes = d.changes.filter((c) => c.position > from);
  if (changes.length || missed || to !== mark || number !== newest) { // otherwise it is a repeat
    const line = JSON.stringify({ mark: number === null ? `${to}` : `${to}/${number}`, missed, changes }) + "\n";
    writeFileSync(file, line); // the end line or an error; writeSync may write a part
    fsyncSync(file);
    [mark, newest] = [to, number];
  }
}

const server = createServer((request, response) => {
  const answer = (status, text = "") => response.writeHead(status, { "Content-Type": "text/plain" }).end(text);
  if (request.method === "GET") { // confirm subscriptions to our topic, and no other
    const query = new URL(request.url, "http://callback").searchParams;
    const mode = query.get("hub.mode");
    if (!checkQuery(request, query)) return answer(403);
    if (mode === "denied") {
      console.error(`the hub ended the subscription: ${query.get("hub.reason")}`);
      return answer(200);
    }
    if ((mode === "subscribe" || mode === "unsubscribe") && query.get("hub.topic") === topic) return answer(200, query.get("hub.challenge"));
    return answer(404);
  }
  const parts = [];
  let size = 0;
  request.on("data", (part) => {
    if ((size += part.length) <= maxDelivery) parts.push(part);
  });
  request.on("end", () => { // 2xx means that the delivery is durable; after any other answer the hub retries
    const body = Buffer.concat(parts);
    if (size > maxDelivery) return answer(413);
    if (!signed(body, request.headers, "x-hub-signature")) return answer(403);
    let delivery;
    try {
      delivery = read(body.toString());
    } catch (e) {
      console.error(`read delivery: ${e.message}`);
      return answer(400);
    }
    store(delivery, request.headers["rs-gap"]);
    answer(204);
  });
});
const colon = address.lastIndexOf(":");
server.listen(Number(address.slice(colon + 1)), address.slice(0, colon), () => console.log(`callback http://${address.slice(0, colon)}:${server.address().port}/`));
process.on("SIGTERM", () => server.close(() => closeSync(file)));
