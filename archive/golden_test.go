package archive

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

var update = flag.Bool("update", false, "write the golden files anew")

// The bytes of the documents.
func TestGolden(t *testing.T) {
	at := func(n uint64) feed.Cursor {
		return feed.Cursor{Position: n, Micros: 1_790_000_000_000_000 + int64(n)*1_000_001}
	}
	rec := &record{Begin: 17}
	for _, n := range []uint64{1, 2, 5} {
		rec = rec.with(kept{Number: n, Log: "17", From: at(10*n - 10), At: at(10 * n), Size: 1234, SHA256: "00ff"})
	}
	for _, n := range []uint64{10, 25} {
		rec = rec.withResources(keptResources{Log: "17", At: at(n), Completed: at(n).Micros + 60_000_000, Files: []file{{4321, "ff00"}, {99, "01"}}})
	}
	d := &documents{base, &feed.State{Set: set}, rec, mostLists}
	golden(t, "archive", d.xml(d.archive(d.changeLists(), 0)))
	golden(t, "resources", d.xml(d.archive(d.resourceLists(), 0)))
	d.st = &feed.State{Set: set, Description: feed.Description{WholeSeconds: true}}
	golden(t, "archive-seconds", d.xml(d.archive(d.changeLists(), 0)))
	d = &documents{base, &feed.State{Set: set}, rec, 2}
	golden(t, "archive-index", d.xml(d.archive(d.changeLists(), 0)))
	golden(t, "archive-part", d.xml(d.named(d.part(d.changeLists(), 2))))
	d = &documents{base, &feed.State{Set: set}, rec, 1}
	golden(t, "resources-index", d.xml(d.archive(d.resourceLists(), 0)))
	golden(t, "resources-part", d.xml(d.named(d.part(d.resourceLists(), 2))))
	d.most = 2
	for _, name := range []string{"", d.part(d.changeLists(), 0), d.part(d.changeLists(), 3), "changelist-archive-18-1.xml", "changelist-archive-17-01.xml"} {
		if d.named(name) != nil {
			t.Errorf("there is %q", name)
		}
	}
}

// golden compares a document with its golden file, and with the XML schemas.
func golden(t *testing.T, name string, text []byte) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden.xml")
	if *update {
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(text, want) {
		t.Errorf("it differs from %s:\n%s", path, text)
	}
	if _, err := resourcesync.ReadXML(bytes.NewReader(text), resourcesync.Limits{}); err != nil {
		t.Errorf("%s cannot be read back: %v", name, err)
	}
	fits(t, name, text)
}
