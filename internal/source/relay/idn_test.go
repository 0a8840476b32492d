package relay_test

import (
	"path/filepath"
	"testing"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/changelog/disklog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/testutil/localhub"
	"github.com/rshub/rshub/resourcesync"
)

// A set with percent-encoded hosts, as hubs once accepted them, gets hosts in ASCII. The bound on
// deletions applies.
func TestListRepairsHosts(t *testing.T) {
	dir := t.TempDir()
	log, err := disklog.Open(t.Context(), filepath.Join(dir, "changes"), disklog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Make(t.Context(), "demo", feed.Description{}, 10_000); err != nil {
		t.Fatal(err)
	}
	old := []resourcesync.Change{
		{Loc: "https://b%C3%BCcher.example/1", Change: resourcesync.Created},
		{Loc: "https://b%C3%BCcher.example/2", Change: resourcesync.Created},
	}
	if _, err := log.Append(t.Context(), "demo", changelog.Publish{Changes: old}); err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	s := new(site)
	w := newWorldOf(t, localhub.StartAt(t, dir), s)
	s.put("/sitemap.xml", opening+"<url><loc>https://bücher.example/1</loc></url><url><loc>https://bücher.example/2</loc></url></urlset>")
	w.begin("/sitemap.xml")
	w.pollWant("compared 2 0 2")
	w.wantLocs("https://xn--bcher-kva.example/1", "https://xn--bcher-kva.example/2")
	w.pollWant("unchanged 0 0 0")
}
