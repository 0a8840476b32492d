package client_test

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/rshub/rshub/client"
	"github.com/rshub/rshub/feed/compressed"
	"github.com/rshub/rshub/resourcesync"
)

// answering returns a client of a hub that answers every request with a body in a coding.
// The answers are counted.
func answering(t *testing.T, coding string, body []byte) (c *client.Client, answers *int) {
	answers = new(int)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*answers++
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Encoding", coding)
		_, _ = w.Write(body)
	}))
	t.Cleanup(s.Close)
	return newClient(t, s.URL, newClock().options()), answers
}

// A hub that can compresses pages for the Client, with the dictionary.
func TestPagesAreCompressed(t *testing.T) {
	s := newSite(t)
	s.publish(t, locs(1, 500)...)
	s.trouble = func(_ int, w http.ResponseWriter, r *http.Request) bool {
		rec := httptest.NewRecorder()
		s.trouble = nil
		s.follow.Serve(rec, r, "demo")
		if rec.Header().Get("Content-Encoding") != compressed.DCZ || rec.Body.Len() > 10_000 {
			t.Errorf("%d bytes, %v", rec.Body.Len(), rec.Header())
		}
		return false
	}
	r := read(t, newClient(t, s.URL, newClock().options()).Follow(t.Context(), "demo", "start", client.FollowOptions{}))
	if r.batch(); len(r.locs) != 500 {
		t.Errorf("%d changes came", len(r.locs))
	}
}

// What the Client cannot read is no page of a hub.
func TestPageInAnotherCoding(t *testing.T) {
	page := []byte(`{"set":"demo","after":"0-0","cursor":"0-0","changes":[]}`)
	other := compressed.Head(compressed.DCZ)
	other[30]++
	for name, test := range map[string]struct {
		coding string
		body   []byte
	}{
		"br": {"br", page}, "two": {"zstd, zstd", page}, "no zstd": {"zstd", page}, "no dcz": {"dcz", page}, "short": {"dcz", page[:5]},
		"another dictionary": {"dcz", compressed.AppendWithDictionary(other, page)}, "cut off": {"zstd", compressed.Append(nil, page)[:20]},
	} {
		c, _ := answering(t, test.coding, test.body)
		for b, err := range c.Follow(t.Context(), "demo", "start", client.FollowOptions{}) {
			if b != nil || !errors.Is(err, client.ErrNoHub) {
				t.Errorf("%s: %v, %v", name, b, err)
			}
			break
		}
	}
}

// A page that unpacks to gigabytes is refused, and takes no more memory than a plain one.
func TestPageIsABomb(t *testing.T) {
	if testing.Short() {
		t.Skip("it reads 64 MiB of JSON")
	}
	zeros := "\"" + strings.Repeat("0", 1_000) + "\","
	body := append(compressed.Append(nil, []byte(`{"later":[`)), bytes.Repeat(compressed.Append(nil, []byte(strings.Repeat(zeros, 1_000))), 2_000)...)
	c, answers := answering(t, "zstd", body)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, err := range c.Follow(t.Context(), "demo", "start", client.FollowOptions{Limit: 1}) {
		if !errors.Is(err, resourcesync.ErrTooLarge) {
			t.Errorf("%d bytes are %v", len(body), err)
		}
		break
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 512<<20 || *answers != 1 { // in buffers that grow up to the bound of any page, 64 MiB
		t.Errorf("%d bytes took %d bytes of memory, and %d answers", len(body), took, *answers)
	}
}
