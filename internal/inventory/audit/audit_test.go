package audit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/inventory/digest"
	"github.com/rshub/rshub/internal/inventory/sourcetest"
	"github.com/rshub/rshub/resourcesync"
)

// ask answers a question of an end that has no resources in a range.
func ask(t *testing.T, s *inventory.State, r inventory.Range, details bool) Reply {
	t.Helper()
	reply, err := Answer(context.Background(), s, Question{At: s.Cursor(), By: digest.ByPosition, Ranges: []RangeQuestion{{Range: r}}, Details: details})
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

// TestAnswerSizes checks which ranges are listed and which are split.
func TestAnswerSizes(t *testing.T) {
	at := feed.Cursor{Position: 1, Micros: 1}
	for _, tt := range []struct {
		n, ranges int
		listed    bool
	}{{1, 1, true}, {64, 1, true}, {65, 33, false}, {128, 64, false}, {1000, 63, false}, {4096, 64, false}, {20_000, 64, false}} {
		reply := ask(t, holding(t, at, sourcetest.PEPs(tt.n)), inventory.Range{}, false)
		if got := reply.Ranges; len(got) != tt.ranges || got[0].Listed != tt.listed {
			t.Errorf("%d resources: got %d ranges, listed %t, want %d, %t", tt.n, len(got), got[0].Listed, tt.ranges, tt.listed)
		}
	}
	empty := holding(t, at, nil)
	q := Question{At: empty.Cursor(), By: digest.ByContent, Ranges: []RangeQuestion{{Digest: new(digest.Tally).Digest(digest.ByContent)}}}
	if reply, err := Answer(context.Background(), empty, q); err != nil || len(reply.Ranges) != 0 {
		t.Errorf("both ends empty: Answer() = %+v, %v, want no ranges", reply, err)
	}
	q.Ranges[0].Count = 1
	if reply, err := Answer(context.Background(), empty, q); err != nil || len(reply.Ranges) != 1 || !reply.Ranges[0].Listed {
		t.Errorf("answering end empty: Answer() = %+v, %v, want a listed range", reply, err)
	}
	q.At.Position++
	if _, err := Answer(context.Background(), empty, q); err == nil {
		t.Error("Answer() at another cursor = nil, want an error")
	}
}

// TestAnswerBounds checks the limits on the size of an answer.
func TestAnswerBounds(t *testing.T) {
	const n = 400
	all := make([]feed.Entry, 64*n)
	long := strings.Repeat("x", 1500)
	for i := range all {
		all[i] = feed.Entry{Cursor: feed.Cursor{Position: uint64(i + 1), Micros: 1}, Change: resourcesync.Change{Loc: fmt.Sprintf("https://example.org/%s/%06d", long, i), Change: resourcesync.Created}}
	}
	s := holding(t, feed.Cursor{Position: 64 * n, Micros: 1}, all)
	q := Question{At: s.Cursor(), By: digest.ByPosition}
	for i := range n {
		r := inventory.Range{From: all[64*i].Change.Loc}
		if i+1 < n {
			r.To = all[64*(i+1)].Change.Loc
		}
		q.Ranges = append(q.Ranges, RangeQuestion{Range: r})
	}
	if _, err := Answer(context.Background(), s, q); !errors.Is(err, resourcesync.ErrTooLarge) || !strings.Contains(err.Error(), "ask about fewer ranges") {
		t.Errorf("Answer() = %v, want %v", err, resourcesync.ErrTooLarge)
	}
	q.Ranges = q.Ranges[:200]
	reply, err := Answer(context.Background(), s, q)
	if err != nil {
		t.Fatal(err)
	}
	if text := reply.AppendJSON(nil); len(text) > MaxReply {
		t.Errorf("got %d bytes, want at most %d", len(text), MaxReply)
	}

	// Details end when they get too large, but the first is always sent.
	const huge = 3 << 20
	for i := range 3 {
		all[i].Change.Type = strings.Repeat("y", huge)
	}
	s = holding(t, s.Cursor(), all[:3])
	reply = ask(t, s, inventory.Range{}, true)
	if got := reply.Ranges[0].Resources; got[0].Entry == nil || got[1].Entry != nil || got[2].Entry != nil {
		t.Error("got other entries than the first")
	}
	all[1].Change.Type = strings.Repeat("y", 3*huge)
	s = holding(t, s.Cursor(), all[:3])
	if got := ask(t, s, inventory.Range{From: all[1].Change.Loc}, true).Ranges[0].Resources; got[0].Entry == nil {
		t.Error("got no large entry")
	}
}

// TestAuditJSON checks the wire format byte for byte.
func TestAuditJSON(t *testing.T) {
	at := feed.Cursor{Position: 7, Micros: 1_700_000_000_123_456}
	length := int64(12)
	entry := feed.Entry{Cursor: feed.Cursor{Position: 3, Micros: 1_700_000_000_000_000}, Change: resourcesync.Change{
		Loc: "https://example.org/a?b=<&>", Change: resourcesync.Updated, Datetime: time.Date(2023, 1, 2, 3, 4, 5, 0, time.UTC),
		Lastmod: time.Date(2023, 1, 2, 3, 4, 5, 600_000_000, time.UTC), Hash: "md5:00", Length: &length,
		Attrs: []resourcesync.Attr{{Namespace: "https://example.org/ns", Name: "x", Value: `"`}},
	}}
	summary := Summary{Set: "peps", Cursor: at, Complete: true, Count: 2, Weak: 1, Position: digest.Digest{1}, Content: digest.Digest{2}}
	question := Question{At: at, By: digest.ByContent, Ranges: []RangeQuestion{{inventory.Range{From: "", To: "https://example.org/m"}, 3, digest.Digest{0xab}}, {inventory.Range{From: "https://example.org/n\x00"}, 0, digest.Digest{}}}}
	reply := Reply{Set: "peps", Cursor: at, Ranges: []RangeAnswer{
		{Range: inventory.Range{From: "", To: "https://example.org/c"}, Count: 2, Listed: true, Resources: []Resource{
			{Loc: entry.Change.Loc, Position: 3, E: digest.Digest{0xff}, Entry: &entry}, {Loc: "https://example.org/b", Position: 4, E: digest.Digest{0xfe}},
		}},
		{Range: inventory.Range{From: "https://example.org/c", To: "https://example.org/d"}, Listed: true},
		{Range: inventory.Range{From: "https://example.org/d", To: ""}, Count: 65, Digest: digest.Digest{0xcd}},
	}}
	const zeros = "000000000000000000000000000000"
	for _, test := range []struct{ name, got, want string }{
		{"summary", string(summary.AppendJSON(nil)), `{"set":"peps","cursor":"7-1700000000123456","complete":true,"count":2,"weak":1,"position":"01` + zeros + `","content":"02` + zeros + `"}`},
		{"question", string(question.AppendJSON(nil)), `{"at":"7-1700000000123456","by":"content","ranges":[{"from":null,"to":"https://example.org/m","count":3,"digest":"ab` + zeros + `"},` +
			`{"from":"https://example.org/n\u0000","to":null,"count":0,"digest":"00` + zeros + `"}]}`},
		{"reply", string(reply.AppendJSON(nil)), `{"set":"peps","cursor":"7-1700000000123456","ranges":[{"from":null,"to":"https://example.org/c","count":2,"resources":[` +
			`{"loc":"https://example.org/a?b=<&>","change":"updated","lastmod":"2023-01-02T03:04:05.6Z","hash":"md5:00","length":12,"{https://example.org/ns}x":"\"",` +
			`"position":3,"datetime":"2023-11-14T22:13:20.000000Z","sourceDatetime":"2023-01-02T03:04:05Z","e":"ff` + zeros + `"},` +
			`{"loc":"https://example.org/b","position":4,"e":"fe` + zeros + `"}]},` +
			`{"from":"https://example.org/c","to":"https://example.org/d","count":0,"resources":[]},` +
			`{"from":"https://example.org/d","to":null,"count":65,"digest":"cd` + zeros + `"}]}`},
	} {
		if test.got != test.want {
			t.Errorf("%s = %s\nwant %s", test.name, test.got, test.want)
		}
	}
	wantRead(t, summary, ReadSummary, (*Summary).AppendJSON)
	wantRead(t, question, ReadQuestion, (*Question).AppendJSON)
	wantRead(t, reply, ReadReply, (*Reply).AppendJSON)
}
