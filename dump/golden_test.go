package dump

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

var update = flag.Bool("update", false, "write the golden files anew")

// The bytes of the documents.
func TestGolden(t *testing.T) {
	at := func(n uint64) feed.Cursor {
		return feed.Cursor{Position: n, Micros: 1_790_000_000_000_000 + int64(n)*1_000_001}
	}
	dump := func(name string, list uint64, packages int) made {
		m := made{Name: name, List: list, Log: "17", From: at(10 * list), At: at(10*list + 10), Completed: at(100).Time()}
		for i := range packages {
			p := pack{Number: i + 1, Stamp: fmt.Sprintf("stamp%d", i+1), Completed: at(100).Time(), Resources: 5, Zip: file{1234, "00ff"}, Manifest: file{567, "aa"}}
			if p.From, p.At = at(10*list+uint64(i)*5), at(10*list+uint64(i)*5+5); i == 1 {
				p.Missing, p.Named = 2, file{89, "bb"}
			}
			m.Packages = append(m.Packages, p)
		}
		return m
	}
	rec := &record{Resources: []made{dump("resourcedump-20-1", 0, 3)}, Changes: []made{dump("changedump-17-1", 1, 2), dump("changedump-17-2", 2, 1)}}
	for name, d := range map[string]*documents{
		"":         {"https://hub.example.org", &feed.State{Set: "demo"}, rec, 100},
		"-index":   {"https://hub.example.org", &feed.State{Set: "demo"}, rec, 2},
		"-seconds": {"https://hub.example.org", &feed.State{Set: "demo", Description: feed.Description{WholeSeconds: true}}, rec, 100},
	} {
		golden(t, "resourcedump"+name, d.xml(d.resourceDump(0)))
		golden(t, "changedump"+name, d.xml(d.changeDump()))
		if name == "-index" {
			golden(t, "resourcedump-part", d.xml(d.named("resourcedump-20-1-part2-stamp1.xml")))
			golden(t, "changedump-list", d.xml(d.named("changedump-17-1-stamp1.xml")))
		}
	}

	length := int64(7)
	entries := []feed.Entry{
		{Cursor: at(1), Change: resourcesync.Change{Loc: "https://example.org/a?b&c", Change: resourcesync.Created, Datetime: at(0).Time(), Lastmod: at(0).Time().Truncate(time.Second), Hash: "md5:00 sha-256:11", Length: &length, Type: "text/plain", Path: "/changes/1"}},
		{Cursor: at(2), Change: resourcesync.Change{Loc: "https://example.org/b", Change: resourcesync.Deleted}},
	}
	for _, kind := range []string{resourceKind, changeKind} {
		for _, why := range []string{"", "the answer is 404 <Not Found>"} {
			l, err := newList(t.TempDir(), false)
			if err != nil {
				t.Fatal(err)
			}
			for i := range entries[:1+len(kind)%2] {
				if err := l.add(kind, &entries[i], why); err != nil {
					t.Fatal(err)
				}
			}
			h := resourcesync.Header{Capability: kind + "-manifest", At: at(9).Time(), Completed: at(100).Time(), Links: []resourcesync.Link{{Rel: "up", Href: "https://hub.example.org/sets/demo/capabilitylist.xml"}}}
			name := kind + "-manifest"
			if kind == changeKind {
				h.At, h.Completed, h.From, h.Until = time.Time{}, time.Time{}, at(0).Time(), at(2).Time()
			}
			if why != "" {
				name, h.Capability = kind+"-missing", Missing
			}
			in, err := l.reader(&h)
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(in)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, name, text)
			_ = l.file.Close()
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
