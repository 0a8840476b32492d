package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/rshub/rshub/client"
	"github.com/rshub/rshub/client/disk"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// exampleHub starts a hub for an example.
func exampleHub() (url string, stop func()) {
	dir, err := os.MkdirTemp("", "rshub-example")
	if err != nil {
		log.Fatal(err)
	}
	s, err := openSite(dir)
	if err != nil {
		log.Fatal(err)
	}
	return s.URL, func() {
		s.Close()
		_ = os.RemoveAll(dir)
	}
}

func ExampleClient_Publish() {
	hub, stop := exampleHub()
	defer stop()

	c, err := client.New(hub, client.Options{Token: os.Getenv("TOKEN")})
	if err != nil {
		log.Fatal(err)
	}
	receipt, err := c.Publish(context.Background(), "articles", "", []resourcesync.Change{
		{Loc: "https://example.org/1", Change: resourcesync.Created, Type: "text/html"},
		{Loc: "https://example.org/2", Change: resourcesync.Deleted},
	})
	if refused, ok := errors.AsType[*client.RefusedError](err); ok {
		log.Fatal("refused: ", refused.Detail)
	}
	if err != nil {
		log.Fatal("retry later with the same key: ", err)
	}
	fmt.Println("published", receipt.Count)
	// Output: published 2
}

func ExampleClient_FollowAll() {
	hub, stop := exampleHub()
	defer stop()

	dir, err := os.MkdirTemp("", "rshub-example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	c, err := client.New(hub, client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	for _, set := range []string{"articles", "theses"} {
		if _, err := c.Publish(context.Background(), set, "", []resourcesync.Change{{Loc: "https://example.org/" + set, Change: resourcesync.Created}}); err != nil {
			log.Fatal(err)
		}
	}

	cursors, err := client.OpenCursorFile(filepath.Join(dir, "cursors"))
	if err != nil {
		log.Fatal(err)
	}
	defer cursors.Close()
	received := 0
	for batch, err := range c.FollowAll(context.Background(), client.FollowAllOptions{All: true, AllSince: "start", Cursors: cursors}) {
		if set, ok := errors.AsType[*client.SetError](err); ok {
			log.Print(set) // the other sets are still followed
			continue
		}
		if err != nil {
			log.Fatal(err)
		}
		for _, entry := range batch.Entries {
			fmt.Println(batch.Set, entry.Change.Loc)
		}
		if received += len(batch.Entries); received == 2 {
			break
		}
	}
	// Unordered output:
	// articles https://example.org/articles
	// theses https://example.org/theses
}

func ExampleClient_Follow() {
	hub, stop := exampleHub()
	defer stop()

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c, err := client.New(hub, client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := c.Publish(ctx, "articles", "", []resourcesync.Change{
		{Loc: "https://example.org/1", Change: resourcesync.Created},
		{Loc: "https://example.org/2", Change: resourcesync.Updated},
	}); err != nil {
		log.Fatal(err)
	}

	since := "start" // or the cursor that was stored the last time
	for batch, err := range c.Follow(ctx, "articles", since, client.FollowOptions{}) {
		if errors.Is(err, feed.ErrGone) {
			log.Fatal("the hub no longer has these changes; read the source again")
		}
		if err != nil {
			log.Fatal(err)
		}
		for _, entry := range batch.Entries {
			fmt.Println(entry.Position, entry.Change.Change, entry.Change.Loc)
		}
		since = batch.Cursor.String() // store it after the entries were processed
		if len(batch.Entries) == 2 {
			cancel() // enough for an example
		}
	}
	// Output:
	// 1 created https://example.org/1
	// 2 updated https://example.org/2
}

// A destination applies the updates of its replica, and verifies that it is in sync.
func ExampleReplica() {
	hub, stop := exampleHub()
	defer stop()

	ctx := context.Background()
	c, err := client.New(hub, client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := c.Publish(ctx, "articles", "", []resourcesync.Change{
		{Loc: "https://example.org/1", Change: resourcesync.Created},
		{Loc: "https://example.org/2", Change: resourcesync.Updated},
		{Loc: "https://example.org/1", Change: resourcesync.Deleted},
	}); err != nil {
		log.Fatal(err)
	}

	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir) // a real destination retains the directory to continue from it
	store, err := disk.Open(dir, disk.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	replica, err := c.OpenReplica(ctx, "articles", client.ReplicaOptions{Store: store})
	if err != nil {
		log.Fatal(err)
	}
	for update, err := range replica.CatchUp(ctx) { // or Follow, which does not end
		if err != nil {
			log.Fatal(err)
		}
		for _, entry := range update.Entries {
			fmt.Println(entry.Change.Change, entry.Change.Loc) // fetch or remove the resource
		}
	}
	for difference, err := range replica.Audit(ctx, client.AuditOptions{}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(difference.Kind, difference.Loc)
	}
	fmt.Println("in sync")
	// Output:
	// updated https://example.org/2
	// in sync
}

// A program that has not followed the log compares its resources by content.
func ExampleClient_Audit() {
	hub, stop := exampleHub()
	defer stop()

	ctx := context.Background()
	c, err := client.New(hub, client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := c.Publish(ctx, "articles", "", []resourcesync.Change{
		{Loc: "https://example.org/1", Change: resourcesync.Created, Hash: "md5:0cc175b9c0f1b6a831c399e269772661"},
		{Loc: "https://example.org/2", Change: resourcesync.Created, Hash: "md5:92eb5ffee6ae2fec3ad71c777531578f"},
	}); err != nil {
		log.Fatal(err)
	}

	rows := map[string]string{ // from a database
		"https://example.org/1": "md5:92eb5ffee6ae2fec3ad71c777531578f",
	}
	own := func(yield func(*feed.Entry, error) bool) {
		for loc, hash := range rows {
			if !yield(&feed.Entry{Change: resourcesync.Change{Loc: loc, Hash: hash}}, nil) {
				return
			}
		}
	}
	for difference, err := range c.Audit(ctx, "articles", own, client.AuditOptions{Settle: time.Millisecond}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(difference.Kind, difference.Loc)
	}
	// Unordered output:
	// stale https://example.org/1
	// missing https://example.org/2
}

func ExampleClient_Baseline() {
	hub, stop := exampleHub()
	defer stop()

	ctx := context.Background()
	c, err := client.New(hub, client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := c.Publish(ctx, "articles", "", []resourcesync.Change{
		{Loc: "https://example.org/2", Change: resourcesync.Updated},
		{Loc: "https://example.org/1", Change: resourcesync.Created},
	}); err != nil {
		log.Fatal(err)
	}

	var since string // finally, the cursor to follow from
	for part, err := range c.Baseline(ctx, "articles", client.BaselineOptions{}) {
		if err != nil {
			log.Fatal(err)
		}
		if part.Restart {
			fmt.Println("discard all earlier parts")
		}
		for _, entry := range part.Entries {
			fmt.Println(entry.Change.Loc)
		}
		since = part.Cursor()
	}
	fmt.Println(since != "")
	// Output:
	// https://example.org/1
	// https://example.org/2
	// true
}
