// Commands and code for following a set.
import { h, fill, copyable, link, note } from "./dom.js";
import { base, hasTokens, url } from "./api.js";

// openToAll reports whether anyone may follow a set without a token.
async function openToAll(set, signal) {
  if (!hasTokens) return true;
  const answer = await fetch(url(`sets/${set}`), { headers: { Accept: "application/json" }, credentials: "omit", signal }).catch(() => null);
  return answer?.ok ?? false;
}

export async function howToFollow(element, set, parameters, signal, now) {
  const free = await openToAll(set, signal);
  if (signal.aborted) return;
  const topic = now.topic;
  const bearer = free ? "" : ` -H "Authorization: Bearer $TOKEN"`;
  const holds = document.body.dataset.holds === "true" && now.inventory !== "off";
  const section = (title, ...children) => h("section", { class: "how" }, h("h2", {}, title), children);
  const p = (...children) => h("p", {}, children);
  const c = (text) => h("code", {}, text);
  fill(element,
    free ? null : note("", "This set needs a token with the right ", c(`follow:${set}`), ". The commands below read it from the environment:"),
    free ? null : copyable("export TOKEN=…", "command that sets the token"),
    section("curl",
      p("From the oldest change that the hub has, then live. ", c("since=now"), " starts with the next change, ", c("since=CURSOR"), " after the last one that you received."),
      copyable(`curl -N -H 'Accept: text/event-stream'${bearer} '${topic}?since=start'`, "curl command"),
      holds ? [p("All existing resources, then the changes, on one connection:"),
        copyable(`curl -N -H 'Accept: text/event-stream'${bearer} '${topic}?since=baseline'`, "curl command for a baseline")] : null),
    section("A mirror: rsmirror",
      p("Copies all resources into a directory, and proves that the copy is complete."),
      copyable(`${free ? "" : `RSMIRROR_TOKEN="$TOKEN" `}rsmirror '${topic}' ./${set}-copy`, "rsmirror command")),
    section("Python",
      p("With the client in ", c("clients/python"), " of rshub. The cursor is in a file, so the program resumes where it stopped."),
      copyable(`${free ? "" : "import os\n"}import rshub

client = rshub.Client("${base}"${free ? "" : `, token=os.environ["TOKEN"]`})
file = rshub.CursorFile("${set}.cursor", first="start")
for batch in client.follow("${set}", since=file.read()):
    for change in batch.changes:
        print(change["change"], change["loc"])
    file.write(batch.cursor)
`, "Python program")),
    section("JavaScript",
      p("For Node 18 or newer, Deno and Bun. Each request waits up to 30 seconds for new changes. Store ", c("since"), " to resume after a restart."),
      copyable(`const topic = "${topic}";
let since = "start"; // or the stored cursor
for (;;) {
  const answer = await fetch(\`\${topic}?since=\${since}&wait=30s\`, {
    headers: { Accept: "application/json"${free ? "" : ", Authorization: `Bearer ${process.env.TOKEN}`"} },
  });
  if (!answer.ok) throw new Error(await answer.text());
  const page = await answer.json();
  for (const change of page.changes) console.log(change.change, change.loc);
  since = page.cursor;
}
`, "JavaScript program")),
    section("JavaScript in a web page",
      p("The hub must allow the origin of the page (", c("RSHUB_ORIGINS"), "). Browsers reconnect by themselves."),
      free ? null : [p("A browser cannot send a token with an event stream. Your server gets a URL with a ticket for the page, which is valid for five minutes. To reconnect later, the page needs another one:"),
        copyable(`curl -X POST${bearer} '${base}/sets/${set}/ticket'`, "curl command that gets a ticket")],
      copyable(`const source = new EventSource(${free ? `"${topic}?since=start"` : "url"});
source.onmessage = (event) => {
  const batch = JSON.parse(event.data);
  for (const change of batch.changes) console.log(change.change, change.loc);
};
`, "JavaScript for a web page")),
    section("Go",
      copyable(`package main

import (
	"context"
	"fmt"
	"log"
${free ? "" : `	"os"
`}
	"github.com/rshub/rshub/client"
)

func main() {
	hub, err := client.New("${base}", client.Options{${free ? "" : `Token: os.Getenv("TOKEN")`}})
	if err != nil {
		log.Fatal(err)
	}
	cursor := "start" // or the stored cursor
	for batch, err := range hub.Follow(context.Background(), "${set}", cursor, client.FollowOptions{}) {
		if err != nil {
			log.Fatal(err)
		}
		for _, entry := range batch.Entries {
			fmt.Println(entry.Change.Change, entry.Change.Loc)
		}
		cursor = batch.Cursor.String() // store it once the changes are processed
	}
}
`, "Go program")),
    section("Many sets on one connection",
      p("All sets that ", free ? "anyone" : "the token", " may follow, including sets that are created later, over one WebSocket:"),
      copyable(`${free ? "" : `RSHUB_TOKEN="$TOKEN" `}rshub follow -hub '${base}' -all -since start`, "rshub command for all sets")),
    section("Callbacks: WebSub",
      p("The hub POSTs changes to your URL."),
      copyable(`curl${bearer} '${base}/hub' -d hub.mode=subscribe -d 'hub.topic=${topic}' \\\n  -d hub.callback=https://destination.example.org/changes`, "curl command that subscribes")),
    section("Any ResourceSync client",
      p("Start at the ", link(now.capabilitylist, "Capability List"), ".")));
}
