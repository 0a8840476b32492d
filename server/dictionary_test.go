package server

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"testing"

	"github.com/rshub/rshub/feed/compressed"
	"github.com/rshub/rshub/internal/running"
)

// A client that could read the coding dcz is told where the dictionary is, gets it, and then
// gets smaller pages.
func TestDictionary(t *testing.T) {
	h := start(t, Config{})
	h.Publish("demo")
	ask := func(header ...string) (*http.Response, string) {
		return running.Do(t, "GET", h.URL+"/sets/demo/changes?since=start", "", append([]string{"Accept-Encoding", "dcz, zstd"}, header...)...)
	}
	resp, without := ask()
	_, link, _ := strings.Cut(strings.Join(resp.Header.Values("Link"), ", "), h.URL+"/dictionaries/")
	name, rel, _ := strings.Cut(link, ">")
	if resp.Header.Get("Content-Encoding") != "zstd" || !strings.HasPrefix(rel, `; rel="compression-dictionary"`) {
		t.Fatalf("%v", resp.Header)
	}
	resp, dictionary := running.Do(t, "GET", h.URL+"/dictionaries/"+name, "")
	if digest := sha256.Sum256([]byte(dictionary)); hex.EncodeToString(digest[:]) != name || resp.Header.Get("Use-As-Dictionary") != `match="/sets/*/changes*"` {
		t.Errorf("%d bytes, %v", len(dictionary), resp.Header)
	}
	resp, with := ask("Available-Dictionary", compressed.Available())
	if resp.Header.Get("Content-Encoding") != "dcz" || strings.Contains(strings.Join(resp.Header.Values("Link"), ", "), "dictionar") || len(with) >= len(without) {
		t.Errorf("%d bytes and not %d, %v", len(with), len(without), resp.Header)
	}
	for _, vary := range []string{"Accept-Encoding", "Available-Dictionary"} {
		if !strings.Contains(strings.Join(resp.Header.Values("Vary"), ", "), vary) {
			t.Errorf("Vary lacks %s", vary)
		}
	}
	if resp, _ := running.Do(t, "GET", h.URL+"/dictionaries/"+strings.ToUpper(name), ""); resp.StatusCode != http.StatusNotFound {
		t.Error(resp.Status)
	}
}
