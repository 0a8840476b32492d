package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/rshub/rshub/client"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// exampleHub starts a hub for an example.
func exampleHub() (url string, stop func()) {
	dir, err := os.MkdirTemp("", "rshub-example")
	if err != nil {
		log.Fatal(err)
	}
	s, err := open(dir)
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
	if refused, ok := errors.AsType[*client.Refused](err); ok {
		log.Fatal("the hub will not have it: ", refused.Detail)
	}
	if err != nil {
		log.Fatal("later, with the same key: ", err)
	}
	fmt.Println("published", receipt.Count)
	// Output: published 2
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

	place := "start" // or the cursor that was kept the last time
	for batch, err := range c.Follow(ctx, "articles", place, client.FollowOptions{}) {
		if errors.Is(err, feed.ErrGone) {
			log.Fatal("the hub no longer reaches back that far: read the source anew")
		}
		if err != nil {
			log.Fatal(err)
		}
		for _, entry := range batch.Entries {
			fmt.Println(entry.Position, entry.Change.Change, entry.Change.Loc)
		}
		place = batch.Cursor.String() // keep it, after what it stands for is done
		if len(batch.Entries) == 2 {
			cancel() // enough for an example
		}
	}
	// Output:
	// 1 created https://example.org/1
	// 2 updated https://example.org/2
}
