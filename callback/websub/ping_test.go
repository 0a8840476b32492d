package websub

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/access"
	"github.com/rshub/rshub/internal/testutil/memorytest"
)

// A polled notes the sets that are pinged. The set away cannot be read.
type polled struct{ pinged []string }

func (p *polled) Ping(_ context.Context, set string) error {
	if set == "away" {
		return fmt.Errorf("look at the set: %w", feed.ErrUnavailable)
	}
	p.pinged = append(p.pinged, set)
	return nil
}

// A ping may name several topics, by either name. It is answered 204 when each of them
// is accepted. Otherwise the answer names the one that is not.
func TestPing(t *testing.T) {
	sources := &polled{}
	f := newFront(t, Options{Sources: sources})
	for _, set := range []string{"a", "b", "c", "away"} {
		memorytest.Fill(t, f.log, set)
	}
	topic := func(set string) string { return base + "/sets/" + set + "/changes" }
	for _, test := range []struct {
		form   string
		status int
		says   string
		pinged string
	}{
		{"hub.url=" + topic("a"), 204, "", "[a]"},
		{"hub.topic=" + topic("a"), 204, "", "[a]"},
		{"hub.url=" + topic("a") + "&hub.topic=" + topic("a"), 204, "", "[a]"}, // many send both
		{"hub.url=" + topic("a") + "&hub.url=" + topic("b") + "&hub.url=" + topic("a"), 204, "", "[a b]"},
		{"hub.topic=" + topic("a") + "&hub.topic=" + topic("b") + "&hub.url=" + topic("c"), 204, "", "[c a b]"},
		{"", 400, "hub.url or hub.topic is missing", "[]"},
		{"hub.url=", 400, "hub.url is missing", "[]"},
		{"hub.url=" + topic("a") + "&hub.url=https://example.org/x", 404, `hub.url: got "https://example.org/x"`, "[]"},
		{"hub.url=" + topic("a") + "&hub.topic=" + topic("private"), 403, "hub.topic=" + topic("private"), "[]"},
		{"hub.url=" + topic("a") + "&hub.url=" + topic("away"), 503, "hub.url=" + topic("away") + ": ", "[a]"},
	} {
		sources.pinged = nil
		w := f.answer(httptest.NewRequest(http.MethodPost, "/hub", strings.NewReader("hub.mode=publish&"+test.form)), rights(t, "publish:a,publish:b,publish:c,publish:away"))
		if w.Code != test.status || !strings.Contains(w.Body.String(), test.says) || (w.Code == 204) != (w.Body.Len() == 0) {
			t.Errorf("%s is answered %d: %s", test.form, w.Code, w.Body)
		}
		if fmt.Sprint(sources.pinged) != test.pinged {
			t.Errorf("%s pings %v, not %s", test.form, sources.pinged, test.pinged)
		}
	}
	// A hub that does not fetch says so.
	f.server.opts.Sources = nil
	if w := f.answer(httptest.NewRequest(http.MethodPost, "/hub", strings.NewReader("hub.mode=publish&hub.url="+topic("a"))), access.All()); w.Code != 400 || !strings.Contains(w.Body.String(), "does not fetch") {
		t.Errorf("without a fetcher it is answered %d: %s", w.Code, w.Body)
	}
}
