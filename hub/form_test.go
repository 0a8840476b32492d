package hub

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// locLines is a form with one loc a line, relative to the title of the set. Its identity is the
// header Id. Lines that begin with "#" are comments.
var locLines = &Format{MediaTypes: []string{"text/x-locs", "text/x-loc"}, Header: "X-Locs", Read: func(body []byte, header http.Header, d feed.Description, l resourcesync.Limits) (changes []resourcesync.Change, identity string, err error) {
	for i, line := range bytes.Fields(body) {
		if line[0] == '#' {
			continue
		}
		c := resourcesync.Change{Loc: d.Title + string(line), Change: resourcesync.Updated}
		if err := l.Check(&c); err != nil {
			err.(*resourcesync.Error).Entry = i + 1
			return nil, "", err
		}
		changes = append(changes, c)
	}
	return changes, header.Get("Id"), l.CheckMemory(int64(len(changes)) * 1000)
}}

func TestCustomFormat(t *testing.T) {
	h, log := newHub(t, Options{MaxBody: 10_000, Formats: []*Format{locLines}})
	for _, test := range []struct {
		name    string
		headers []string // besides the media type
		body    string
		status  int
		says    string
		total   int // of changes, after it
	}{
		{"a new set", nil, loc1, 204, "", 1},
		{"the second media type", []string{"Content-Type", "text/x-loc;charset=utf-8"}, loc1 + "\n" + loc2, 204, "", 3},
		{"another media type, and the header", []string{"Content-Type", "application/json", "X-Locs", "1"}, loc1, 204, "", 4},
		{"gzip", []string{"Content-Encoding", "gzip"}, gzipped(loc1), 204, "", 5},
		{"nothing that is a change", []string{"Id", "0"}, "#", 204, "", 5},
		{"an identity", []string{"Id", "1"}, loc1, 204, "", 6},
		{"the same again, in other words", []string{"Id", "1"}, loc1 + "\n", 204, "", 6},
		{"another identity", []string{"Id", "2"}, loc1, 204, "", 7},
		{"a key of the client's, which counts more", []string{"Id", "2", "Idempotency-Key", "k"}, loc1, 204, "", 8},
		{"that key again", []string{"Id", "3", "Idempotency-Key", "k"}, loc1, 204, "", 8},
		{"that key with another body", []string{"Id", "2", "Idempotency-Key", "k"}, loc2, 422, "", 8},
		{"a key, and content in headers", []string{"X-Locs", "1", "Id", "3", "Idempotency-Key", "h"}, loc1, 204, "", 9},
		{"both again", []string{"X-Locs", "1", "Id", "3", "Idempotency-Key", "h"}, loc1, 204, "", 9},
		{"that key with other content in headers", []string{"X-Locs", "1", "Id", "4", "Idempotency-Key", "h"}, loc1, 422, "", 9},
		{"one that is wrong", nil, loc1 + "\n:", 400, "entry 2", 9},
		{"too large", nil, strings.Repeat("#\n", 6_000), 413, "10000 bytes", 9},
		{"too large once unpacked", []string{"Content-Encoding", "gzip"}, gzipped(strings.Repeat("#\n", 6_000)), 413, "10000 bytes", 9},
		{"half a gzip", []string{"Content-Encoding", "gzip"}, gzipped(loc1)[:20], 400, "ends early", 9},
		{"no form", []string{"Content-Type", "text/plain"}, loc1, 415, "changes are sent as application/xml, text/xml, application/json, application/x-ndjson, application/ndjson, application/jsonl, text/x-locs, text/x-loc, or with the header X-Locs", 9},
	} {
		t.Run(test.name, func(t *testing.T) {
			headers := test.headers
			if len(headers) == 0 || headers[0] != "Content-Type" {
				headers = append(headers, "Content-Type", "text/x-locs")
			}
			w := post(h, test.body, headers...)
			state, err := log.State(t.Context(), "demo")
			if w.Code != test.status || !strings.Contains(w.Body.String(), test.says) || w.Code == 204 && w.Body.Len() > 0 || err != nil || state.Head.Position != uint64(test.total) {
				t.Errorf("got %d %q and %d changes, %v; want %d %q and %d", w.Code, w.Body, state.Head.Position, err, test.status, test.says, test.total)
			}
		})
	}
	if err := h.Describe(t.Context(), "demo", feed.Description{Title: "https://example.org/"}); err != nil {
		t.Fatal(err)
	}
	if w := post(h, "x", "Content-Type", "text/x-locs"); w.Code != 204 {
		t.Errorf("the description of the set is ignored: got status %d, body %s", w.Code, w.Body)
	}
	if header := (http.Header{"Content-Type": {"text/x-loc"}}); !h.IsPublish(header) {
		t.Errorf("IsPublish(%v) = false, want true", header)
	}
}
