package hub

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// Batches announced by other hubs are split like those published here. A short announcement
// can decode to many megabytes.
func TestReceiveSplitsBatches(t *testing.T) {
	long := strings.Repeat("x", 1000)
	var cs []resourcesync.Change
	for i := range 1000 {
		c := resourcesync.Change{Loc: fmt.Sprint("urn:x:", i), Change: resourcesync.Updated, Path: "/" + long, Encoding: long}
		for range 10 {
			c.Links = append(c.Links, resourcesync.Link{Rel: "up", Href: "urn:x:a", Path: "/" + long, Attrs: []resourcesync.Attr{{Namespace: "urn:x", Name: "a", Value: long}}})
		}
		cs = append(cs, c)
	}
	b := feed.NewBatch("a", feed.Cursor{Position: 0, Micros: 1}, feed.Cursor{Position: 1000, Micros: 1001}, cs)
	all := encodeAnnouncements(me, "a", changelog.Appended{After: b.After, Cursor: b.Cursor, Count: len(cs), Blocks: changelog.CutBlocks(cs, 1, 10_000)}, 1<<20)
	tail := &tail{changed: make(chan struct{}), head: b.After}
	for _, a := range all {
		heard, err := openAnnouncement(me, "a", a, b.Cursor.Time(), time.Minute)
		if err != nil || heard.batch == nil {
			t.Fatal(err)
		}
		if !tail.receive(heard) {
			t.Fatal("receive() = false for an announcement that follows the head")
		}
	}
	if tail.head != b.Cursor || len(tail.window) == 0 {
		t.Fatalf("head = %v after the announcements", tail.head)
	}
	for _, part := range tail.window {
		if n := len(part.JSON()); n > 512_000 {
			t.Errorf("a part of %d entries has %d bytes", len(part.Entries), n)
		}
	}
}
