package callback

import (
	"sync"
	"testing"
	"time"

	"github.com/rshub/rshub/callback/outlet"
	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/memorytest"
)

// A span is encoded once, however many goroutines need it at the same time.
func TestSpanOnce(t *testing.T) {
	a := changelog.Appended{After: feed.Cursor{Micros: 1}, Cursor: feed.Cursor{Position: 3, Micros: time.Now().UnixMicro()}}
	p := newSpan(feed.NewBatch("demo", a.After, a.Cursor, memorytest.Changes("a", 3)), outlet.Notifications)
	var wg sync.WaitGroup
	var first [16]*byte
	for i := range first {
		wg.Go(func() {
			text, _ := p.encoded()
			first[i] = &text[0]
		})
	}
	wg.Wait()
	for i := range first {
		if first[i] != first[0] {
			t.Fatal("it was encoded twice")
		}
	}
}
