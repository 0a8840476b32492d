package websub

import (
	"context"
	"fmt"
	"regexp"
	"testing"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/testutil/memorytest"
)

// fakeSources records the pinged sets. The set away is unavailable.
type fakeSources struct{ pinged []string }

func (s *fakeSources) Ping(_ context.Context, set string) error {
	if set == "away" {
		return fmt.Errorf("ping set: %w", feed.ErrUnavailable)
	}
	s.pinged = append(s.pinged, set)
	return nil
}

// A ping may name several topics, by either parameter. An error names the rejected one.
func TestPing(t *testing.T) {
	sources := &fakeSources{}
	f, _ := newFront(t, Options{Sources: sources})
	for _, set := range []string{"a", "b", "c", "away"} {
		memorytest.Fill(t, f.log, set)
	}
	publisher := rights(t, "publish:a,publish:b,publish:c,publish:away")
	for _, tt := range []struct {
		name, form string // {SET} is the topic of a set
		status     int
		want       string
		pinged     string
	}{
		{"hub.url", "hub.url={a}", 204, "", "[a]"},
		{"hub.topic", "hub.topic={a}", 204, "", "[a]"},
		{"both", "hub.url={a}&hub.topic={a}", 204, "", "[a]"}, // many publishers send both
		{"duplicate", "hub.url={a}&hub.url={b}&hub.url={a}", 204, "", "[a b]"},
		{"several", "hub.topic={a}&hub.topic={b}&hub.url={c}", 204, "", "[c a b]"},
		{"missing", "", 400, "hub.url or hub.topic is missing", "[]"},
		{"empty", "hub.url=", 400, "hub.url is missing", "[]"},
		{"other hub", "hub.url={a}&hub.url=https://example.org/x", 404, `hub.url: got "https://example.org/x"`, "[]"},
		{"forbidden", "hub.url={a}&hub.topic={private}", 403, "hub.topic=" + base + "/sets/private/changes: ", "[]"},
		{"unavailable", "hub.url={a}&hub.url={away}", 503, "hub.url=" + base + "/sets/away/changes: ", "[a]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sources.pinged = nil
			form := regexp.MustCompile(`\{(\w+)\}`).ReplaceAllString(tt.form, base+"/sets/$1/changes")
			w := f.postAs(t, publisher, "hub.mode=publish&"+form, tt.status, tt.want)
			if got := fmt.Sprint(sources.pinged); got != tt.pinged || (w.Code == 204) != (w.Body.Len() == 0) {
				t.Errorf("pinged %s, want %s; response %q", got, tt.pinged, w.Body)
			}
		})
	}
	f.server.opts.Sources = nil
	f.postAs(t, publisher, "hub.mode=publish&hub.url="+base+"/sets/a/changes", 400, "does not fetch")
}
