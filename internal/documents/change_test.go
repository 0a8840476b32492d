package documents_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rshub/rshub/internal/documents"
)

// Each change that is kept has a URL, in two forms, each with an ETag of its own.
func TestChange(t *testing.T) {
	m, s := filled(t, 4, 10, documents.Options{})
	m.trim("peps", 6)
	floor := m.state("peps").Floor.Position
	if floor == 0 {
		t.Fatal("nothing was trimmed")
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
		for _, test := range []struct{ accept, is, has string }{
			{"*/*", "application/json", fmt.Sprintf(`"position":%d,`, position)},
			{"application/xml", "application/xml", fmt.Sprintf(`h:position="%d"`, position)},
		} {
			w := s.get(url, "Accept", test.accept)
			if w.Code != want {
				t.Errorf("%s is %d, want %d: %s", url, w.Code, want, w.Body)
			}
			if want != 200 {
				continue
			}
			if text := w.Body.String(); w.Header().Get("Content-Type") != test.is || !strings.Contains(text, test.has) || strings.Count(text, "https://peps.example.org/pep-") > 2 || !strings.Contains(text, loc) {
				t.Errorf("%s is %s", url, text)
			}
			tag := w.Header().Get("Etag")
			if tags[tag] = true; s.get(url, "Accept", test.accept, "If-None-Match", tag).Code != 304 {
				t.Errorf("%s was not modified, and is sent again", url)
			}
		}
		if want == 200 && len(tags) != 2 {
			t.Errorf("%s has the ETags %v", url, tags)
		}
	}
	for _, text := range []string{"-1", "a", "1/2", ""} {
		if w := s.get("/sets/peps/changes/" + text); w.Code != 404 {
			t.Errorf("changes/%s is %d", text, w.Code)
		}
	}
	if w := s.get("/sets/none/changes/1"); w.Code != 404 {
		t.Errorf("a change of no set is %d", w.Code)
	}
}
