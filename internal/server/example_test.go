package server_test

import (
	"context"
	"fmt"
	"os"

	"github.com/rshub/rshub/client"
	"github.com/rshub/rshub/internal/server"
	"github.com/rshub/rshub/resourcesync"
)

// A hub embedded in another program runs until its context ends. Publishers and followers connect to
// it as to any other hub.
func Example() {
	data, _ := os.MkdirTemp("", "rshub-*")
	defer os.RemoveAll(data)
	hub, err := server.New(server.Config{Listen: "127.0.0.1:0", Data: data})
	if err != nil {
		panic(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- hub.Run(ctx) }()
	select {
	case <-hub.Ready():
	case err := <-ended:
		panic(err)
	}
	listen, _ := hub.Addrs()

	c, _ := client.New("http://"+listen.String(), client.Options{})
	created := []resourcesync.Change{{Loc: "https://example.org/a", Change: resourcesync.Created}}
	receipt, err := c.Publish(ctx, "demo", "", created)
	fmt.Println(receipt.Count, err)
	for batch, err := range c.Follow(ctx, "demo", "start", client.FollowOptions{}) {
		if err != nil {
			panic(err)
		}
		if len(batch.Entries) > 0 {
			fmt.Println(batch.Entries[0].Change.Loc)
			break
		}
	}
	stop()
	fmt.Println(<-ended)
	// Output:
	// 1 <nil>
	// https://example.org/a
	// <nil>
}
