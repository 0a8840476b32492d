package subscribe

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/dialect/cloudevents"
	"github.com/rshub/rshub/internal/packed"
	"github.com/rshub/rshub/internal/testutil"
	"github.com/rshub/rshub/resourcesync"
)

// TestPageReleasesBlocks checks that pages of every format retain the text of their entries, not the
// blocks that contained them.
func TestPageReleasesBlocks(t *testing.T) {
	for _, f := range append(feed.PageFormats(), cloudevents.Writer{Base: "https://hub.example.org"}.Page()) {
		t.Run(f.MediaType, func(t *testing.T) {
			s := &Server{}
			kept := testutil.RetainedBytes(t, func() any {
				begin := &feed.Batch{Set: "demo"}
				p := s.newPage(begin, poll{limit: 10_000, filter: feed.Filter{Types: []string{"text/html"}}}, f)
				for i := range 20 {
					p.extend(decodedBlock(i))
				}
				if p.count != 20 || p.batch.Cursor.Position != 2000 {
					t.Fatalf("got a page of %d entries up to %v, want 20 up to 2000", p.count, p.batch.Cursor)
				}
				return p
			})
			if kept > pageRoom {
				t.Errorf("page retains %d bytes, want at most %d", kept, pageRoom)
			}
		})
	}
}

// decodedBlock returns block i of a log: 100 entries of 10 KB that share one string. One entry has
// the type text/html.
func decodedBlock(i int) *feed.Batch {
	var text []byte
	for k := range 100 {
		c := resourcesync.Change{Loc: fmt.Sprintf("https://example.org/%d/%d", i, k), Change: resourcesync.Updated, Type: "text/plain",
			Attrs: []resourcesync.Attr{{Namespace: "urn:x", Name: "large", Value: strings.Repeat("x", 10_000)}}}
		if k == 50 {
			c.Type, c.Attrs = "text/html", nil
		}
		text = packed.AppendChange(text, &c)
	}
	r := packed.NewReader(string(text))
	b := &feed.Batch{Set: "demo", Entries: make([]feed.Entry, 100)}
	for k := range b.Entries {
		position := uint64(i*100 + k + 1)
		b.Entries[k].Cursor = feed.Cursor{Position: position, Micros: int64(position)}
		r.Change(&b.Entries[k].Change)
	}
	b.Cursor = b.Entries[99].Cursor
	return b
}
