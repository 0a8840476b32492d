package hub

import (
	"context"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rshub/rshub/internal/untiltest"
)

// Followers that are behind share the room for what they read.
func TestReadsAreBounded(t *testing.T) {
	h, log := newHub(t, Options{})
	first := mustPublish(t, h, "a", changes("a", 1)).After
	var reading, most atomic.Int64
	held := make(chan struct{})
	log.onSince = func() error {
		most.Store(max(reading.Add(1), most.Load()))
		<-held
		reading.Add(-1)
		return nil
	}
	const followers = 100
	ctx, cancel := context.WithCancel(t.Context())
	var readers []*reader
	for range followers {
		readers = append(readers, follow(ctx, h, "a", first))
	}
	stack := make([]byte, 4<<20)
	untiltest.Done(t, "all want to read", func() bool {
		return strings.Count(string(stack[:runtime.Stack(stack, true)]), "hub.(*Hub).read(") == followers
	})
	if n := most.Load(); n > maxReads {
		t.Errorf("%d of %d followers read at the same time", n, followers)
	}
	close(held)
	for _, r := range readers {
		<-r.yields
	}
	cancel()
	for _, r := range readers {
		if err := r.ended(t); err != nil {
			t.Error(err)
		}
	}
	if n := len(h.reads); n != 0 {
		t.Errorf("%d reads have not ended", n)
	}
}
