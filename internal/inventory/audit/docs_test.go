package audit

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/inventory/digest"
	"github.com/rshub/rshub/resourcesync"
)

// TestDocs checks the example in docs/audit.md.
func TestDocs(t *testing.T) {
	text, err := os.ReadFile("../../../docs/audit.md")
	if err != nil {
		t.Fatal(err)
	}
	doc := strings.ReplaceAll(string(text), "` `", "") // divides a number of 32 bytes
	want := func(what, s string) {
		if !strings.Contains(doc, s) {
			t.Errorf("docs/audit.md lacks the %s %s", what, s)
		}
	}
	length := int64(10)
	at := feed.Cursor{Position: 7, Micros: 1_700_000_000_123_456}
	s := holding(t, at, []feed.Entry{
		{Cursor: feed.Cursor{Position: 1, Micros: 1}, Change: resourcesync.Change{Loc: "https://example.org/a", Change: resourcesync.Created, Hash: "sha-256:ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"}},
		{Cursor: feed.Cursor{Position: 5, Micros: 5}, Change: resourcesync.Change{Loc: "https://example.org/b", Change: resourcesync.Created, Lastmod: time.Date(2024, 1, 2, 3, 4, 5, 0, time.UTC), Length: &length}},
	})
	for e, err := range s.Walk(context.Background(), inventory.Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		one := digest.TallyOf(e)
		version, _ := digest.Version(&e.Change)
		want("version", "`"+version+"`")
		want("element by position", hex.EncodeToString(one.Position[:]))
		want("element by content", hex.EncodeToString(one.Content[:]))
	}
	total, _ := s.Tally(context.Background(), inventory.Range{})
	want("sum by position", hex.EncodeToString(total.Position[:]))
	want("sum by content", hex.EncodeToString(total.Content[:]))
	look, err := Summarize(context.Background(), s, inventory.Range{})
	if err != nil {
		t.Fatal(err)
	}
	look.Set, look.Complete = "demo", true
	want("summary", string(look.AppendJSON(nil)))
	want("digest by content", look.Content.String())
	first, _ := s.Tally(context.Background(), inventory.Range{To: "https://example.org/b"})
	want("digest of the first", first.Digest(digest.ByContent).String())

	none := new(digest.Tally)
	q := Question{At: at, By: digest.ByPosition, Ranges: []RangeQuestion{{inventory.Range{To: "https://example.org/b"}, 1, first.Digest(digest.ByPosition)}, {inventory.Range{From: "https://example.org/b"}, 0, none.Digest(digest.ByPosition)}}}
	inLines := func(b []byte) string {
		b = bytes.ReplaceAll(b, []byte(`{"from"`), []byte("\n      {\"from\""))
		return "    " + string(b)
	}
	want("question", inLines(q.AppendJSON(nil)))
	reply, err := Answer(context.Background(), s, q)
	if err != nil {
		t.Fatal(err)
	}
	reply.Set = "demo"
	want("reply", inLines(reply.AppendJSON(nil)))
	for _, n := range []int{MaxRanges, MaxListed, MaxSplit} {
		want("limit", strings.Replace(fmt.Sprint(n), "1024", "1,024", 1))
	}
}
