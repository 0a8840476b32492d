package accept

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

func TestMedia(t *testing.T) {
	const (
		xml    = "application/xml"
		json   = "application/json"
		ndjson = "application/x-ndjson"
		stream = "text/event-stream"
	)
	for _, test := range []struct {
		accept string // lines, separated by |
		want   string
	}{
		// No preference.
		{"", xml}, {"*/*", xml}, {"application/*", xml}, {"*", xml}, {"image/png", xml}, {"text/html, image/*", xml}, {",, ,", xml},

		// A weight decides.
		{"application/json", json}, {"APPLICATION/JSON", json}, {"application/json;q=0.5", json},
		{"application/xml;q=0.4, application/json;q=0.5", json}, {"application/xml;q=0.5, application/json;q=0.4", xml},
		{"application/xml;q=0.9, application/json;q=0.8, application/x-ndjson;q=0.95", ndjson},
		{"application/xml;q=0.5, text/event-stream;q=0.999", stream}, {"application/json; q=.3, application/xml;q=0.2", json},
		{"application/xml;q=0.1|application/json;q=0.2", json},
		{"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", xml}, // a browser

		// The most exact element has the say, wherever it stands.
		{"*/*, application/xml;q=0.1, application/json;q=0.2", ndjson}, {"application/*;q=0.3, application/xml;q=0.1", json},
		{"application/*;q=0.3, text/*;q=0.5, application/xml;q=0.4", stream}, {"application/*;q=0.9, application/xml;q=0.1, application/json;q=0.2, */*", stream},

		// With equal weights, what is named is meant.
		{"application/json, */*", json}, {"application/json, text/plain, */*", json}, {"*/*, text/event-stream", stream}, {"text/*, */*", stream},
		{"application/json, application/xml", xml}, {"text/event-stream, application/json", json},

		// A weight of 0 excludes.
		{"application/xml;q=0", json}, {"application/xml;q=0.000, */*", json}, {"application/*;q=0", stream}, {"text/*, application/xml;q=0, text/event-stream;q=0", json},
		{"application/json;q=0, text/html", xml}, {"*/*;q=0", ""}, {"*/*;q=0, application/x-ndjson;q=0.1", ndjson}, {"*;q=0, application/*;q=0.001", xml},

		// Parameters do not count, and what cannot be read does not either.
		{"application/json;charset=utf-8;q=0.5, application/xml;q=0.4", json}, {"application/json;x=\"a,b;q=0\", application/xml;q=0.9", json},
		{"application/json;;", xml}, {"application/json;q=high", xml}, {"application/json;q=2", xml}, {"application/json;q=-1", xml}, {"application/json;q=NaN", xml},
		{"application/json;q=0;q=1", xml}, {"application/xml;x=\"", xml}, {"application/json;q=0, application/json", json},
	} {
		h := http.Header{"Accept": strings.Split(test.accept, "|")}
		if test.accept == "" {
			h = nil
		}
		if got := Media(h, xml, json, ndjson, stream); got != test.want {
			t.Errorf("Media(%s) = %q, want %q", test.accept, got, test.want)
		}
	}
}

func TestNames(t *testing.T) {
	for accept, want := range map[string]bool{
		"text/event-stream": true, "Text/Event-Stream;q=0.001": true, "text/event-stream;charset=utf-8, */*": true, "image/png, text/event-stream": true,
		"": false, "*/*": false, "text/*": false, "text/event-stream;q=0": false, "text/event-stream;q=0, text/*": false, "text/event-streams": false,
	} {
		if got := Names(http.Header{"Accept": {accept}}, "text/event-stream"); got != want {
			t.Errorf("Names(%s) = %t", accept, got)
		}
	}
}

// FuzzMedia checks the properties of every choice for arbitrary headers.
func FuzzMedia(f *testing.F) {
	for _, accept := range []string{"", "*/*", "a/b;q=0, a/*", "a/b;x=\"\\\",\";q=.5,c/d", "a/b;q=1e-400", "\x00,,;;q=", "*/*;q=0"} {
		f.Add(accept)
	}
	f.Fuzz(func(t *testing.T, accept string) {
		offers := []string{"a/b", "a/c", "d/e"}
		h := http.Header{"Accept": {accept}}
		got := Media(h, offers...)
		weight, match := mediaWeight(h, got)
		if got != "" && (!slices.Contains(offers, got) || match != matchNone && weight == 0) {
			t.Errorf("Media(%q) = %q", accept, got)
		}
		for _, offer := range offers {
			w, m := mediaWeight(h, offer)
			if w < 0 || w > 1 || m == matchNone && w != 0 {
				t.Errorf("Accept %q: weight of %s = %v", accept, offer, w)
			}
			if got == "" && (m == matchNone || w > 0) || w > weight {
				t.Errorf("Media(%q) = %q, want %s", accept, got, offer)
			}
		}
		if only := Media(h, got); got != "" && only != got {
			t.Errorf("Media(%q) = %q of three, but not of one", accept, got)
		}
		Gzip(http.Header{"Accept-Encoding": {accept}})
	})
}

func TestZstd(t *testing.T) {
	for header, want := range map[string]bool{
		"": false, "gzip": false, "*": false, "zstd": true, "gzip, zstd;q=0.5": true, "ZSTD": true, "zstd;q=0": false,
		"zstd;q=0.5, identity": false, "identity;q=0.5, zstd": true, "zstd;q=2": false,
	} {
		if got := Zstd(http.Header{"Accept-Encoding": {header}}); got != want {
			t.Errorf("Zstd(%s) = %t", header, got)
		}
	}
}
