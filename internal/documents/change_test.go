package documents_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rshub/rshub/internal/documents"
)

// Each stored change has a URL with two formats, each with its own ETag.
func TestChange(t *testing.T) {
	m, s := newFilled(t, 4, 10, documents.Options{})
	m.trim("peps", 6)
	floor := m.state("peps").Floor.Position
	if floor == 0 {
		t.Fatal("got floor 0, want a trimmed log")
	}
	for position := range uint64(12) {
		want := 200
		switch {
		case position == 0 || position > 10:
			want = 404
		case position <= floor:
			want = 410
		}
		url, loc := fmt.Sprint("/sets/peps/changes/", position), strings.Split(change(position).Loc, "?")[0]
		tags := map[string]bool{}
		for _, test := range []struct{ accept, mediaType, text string }{
			{"*/*", "application/json", fmt.Sprintf(`"position":%d,`, position)},
			{"application/xml", "application/xml", fmt.Sprintf(`h:position="%d"`, position)},
		} {
			w := s.get(url, "Accept", test.accept)
			if w.Code != want {
				t.Errorf("GET %s: got %d, want %d: %s", url, w.Code, want, w.Body)
			}
			if want != 200 {
				continue
			}
			if text := w.Body.String(); w.Header().Get("Content-Type") != test.mediaType || !strings.Contains(text, test.text) || strings.Count(text, "https://peps.example.org/pep-") > 2 || !strings.Contains(text, loc) {
				t.Errorf("GET %s: got %s, want only this change as %s", url, text, test.mediaType)
			}
			tag := w.Header().Get("Etag")
			if tags[tag] = true; s.get(url, "Accept", test.accept, "If-None-Match", tag).Code != 304 {
				t.Errorf("GET %s with If-None-Match: got no 304, want one", url)
			}
		}
		if want == 200 && len(tags) != 2 {
			t.Errorf("%s has the ETags %v", url, tags)
		}
	}
	for _, text := range []string{"-1", "a", "1/2", ""} {
		if w := s.get("/sets/peps/changes/" + text); w.Code != 404 {
			t.Errorf("GET changes/%s: got %d, want 404", text, w.Code)
		}
	}
	if w := s.get("/sets/none/changes/1"); w.Code != 404 {
		t.Errorf("change of a missing set: got %d, want 404", w.Code)
	}
}
