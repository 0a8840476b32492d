package subscribe_test

import (
	"bytes"
	"cmp"
	"fmt"
	"net/http"
	"testing"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
	"github.com/rshub/rshub/subscribe"
)

// Event streams are the same where the server does not take over the connection. newSite
// knows these tests by their names.
func TestNotTakenOver(t *testing.T) {
	for name, test := range map[string]func(*testing.T){
		"Events": TestEvents, "Heartbeats": TestEventHeartbeats, "Shutdown": TestEventsShutdown, "Stalled": TestEventsStalled,
		"Diverged": TestDivergedInTheMiddle, "Failure": TestFailure, "NotMade": TestSetNotMade, "Slow": TestSlowEventStreams,
	} {
		t.Run(name, test)
	}
}

// A stream that was taken over has the same header and the same bytes as one that net/http
// writes.
func TestStreamBytes(t *testing.T) {
	for _, query := range []string{"?since=start", "", "?prefix=https://example.org/b&since=start", "?change=deleted"} {
		s := newSite(t, settings{})
		begin := s.before()
		read := func(header ...string) (http.Header, *recording) {
			events := s.stream(query, header...)
			r := events.record()
			r.wait(begin)
			return events.resp.Header, r
		}
		fastHeader, fast := read()
		slowHeader, slow := read(keepHeader, "1")
		end := s.mixed()
		fast.wait(end)
		slow.wait(end)
		if err := s.server.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		f, err := fast.all()
		w, errSlow := slow.all()
		if err := cmp.Or(err, errSlow); err != nil {
			t.Errorf("%s: the stream does not end properly: %v", query, err)
		}
		if !bytes.Equal(f, w) {
			t.Errorf("%s: taken over:\n%.2000s\nnot taken over:\n%.2000s", query, f, w)
		}
		fastHeader.Del("Date")
		slowHeader.Del("Date")
		if got, want := fmt.Sprint(fastHeader), fmt.Sprint(slowHeader); got != want {
			t.Errorf("the header is %s, want %s", got, want)
		}
	}
}

// Any event is the same in a chunk as without one.
func FuzzEventChunks(f *testing.F) {
	f.Add("https://example.org/1", "created", uint8(1))
	f.Add("https://example.org/ü\u2028\r\n\n", "deleted", uint8(200))
	f.Fuzz(func(t *testing.T, loc, change string, n uint8) {
		changes := make([]resourcesync.Change, n)
		for i := range changes {
			changes[i] = resourcesync.Change{Loc: loc + fmt.Sprint(i), Change: resourcesync.ChangeType(change)}
		}
		b := feed.NewBatch("a", feed.Cursor{Position: 3, Micros: 3}, feed.Cursor{Position: 3 + uint64(n), Micros: 3 + int64(n)}, changes)
		fast, slow := subscribe.EventBothWays(b)
		if !bytes.Equal(fast, slow) {
			t.Errorf("in a chunk:\n%q\nwithout:\n%q", fast, slow)
		}
	})
}
