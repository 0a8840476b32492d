package redislog

import (
	"fmt"
	"testing"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/redisconn"
)

// TestRecut lets two hubs append to small lists. They encode their blocks again until these fit.
func TestRecut(t *testing.T) {
	o := Options{Prefix: prefix()}
	a, b := start(t, shared.url(), o), start(t, shared.url(), o)
	makeSet(t, a, 7)
	for i := range 20 {
		add(t, a, fmt.Sprint("a", i), 1+i%5)
		add(t, b, fmt.Sprint("b", i), 9) // this hub does not know the entries of the other hub
	}
	kept := changelog.Publish{Changes: changes("kept", 5), Key: "key"}
	for range 3 { // a replay in the middle shifts the positions after it
		_, err := b.Append(t.Context(), "set", changelog.Publish{Changes: changes("x", 3)}, kept, changelog.Publish{Changes: changes("y", 30)})
		ok(t, err)
	}
	entries := all(t, a, feed.Cursor{})
	if n := uint64(len(entries)); n != state(t, a).Head.Position || n != 20*3+20*9+5+3*33 {
		t.Errorf("got %d entries", n)
	}
	// The blocks fit in the end, no matter how often another hub is faster.
	overtaken := appendOp{publishes: []changelog.Publish{{Changes: changes("z", 20)}}}
	overtaken.cutBlocks(tail{size: 7})
	for try := 1; try <= maxRecuts; try++ {
		if _, err := overtaken.recutBlocks(redisconn.Answer{"cut", "7", fmt.Sprint(try)}, try); err != nil {
			t.Fatal(err)
		}
	}
	for position := range uint64(7) {
		if !changelog.Fit(overtaken.blocks[0], position, 7) {
			t.Errorf("blocks do not fit after position %d", position)
		}
	}
}
