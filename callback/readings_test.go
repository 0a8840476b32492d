package callback

import (
	"fmt"
	"testing"

	"github.com/rshub/rshub/callback/outlet"
	"github.com/rshub/rshub/feed"
)

// The readings of all sets together are bounded.
func TestReadingsAreBounded(t *testing.T) {
	var r readings
	b := &feed.Batch{Set: "x", Cursor: feed.Cursor{Position: 1}, Entries: make([]feed.Entry, 1)}
	b.Entries[0].Cursor = b.Cursor
	for i := range 100 {
		p := newSpan(b, outlet.Notifications)
		p.size = 1 << 20
		r.add(fmt.Sprint("set", i), p)
	}
	if r.bytes > readBytes || r.used.Len() != readBytes>>20 || len(r.sets) != r.used.Len() {
		t.Errorf("%d bytes, %d pages, %d sets", r.bytes, r.used.Len(), len(r.sets))
	}
	r.forget("set99")
	if p, _ := r.behind("set99", feed.Cursor{}); p != nil || r.used.Len() != readBytes>>20-1 {
		t.Error("a set is not forgotten")
	}
}
