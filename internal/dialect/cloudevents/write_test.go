package cloudevents

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

var update = flag.Bool("update", false, "write the golden files")

// golden compares a text with a file in testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || string(got) != string(want) {
		t.Errorf("got\n%s\nwant %s (%v)", got, file, err)
	}
}

// sample returns a batch of three changes, one of which has all members.
func sample() *feed.Batch {
	length := int64(8)
	begin := feed.Cursor{Position: 6, Micros: 1795234750293100}
	return feed.NewBatch("demo", begin, feed.Cursor{Position: 9, Micros: 1795234750293675}, []resourcesync.Change{
		{Loc: "https://example.org/a", Change: resourcesync.Created},
		{
			Loc: `https://example.org/b?c=d&e`, Change: resourcesync.Updated, Datetime: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Lastmod: time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC),
			Hash: "md5:1584abdf8ebdc9802ac0c6a7402c03b6", Length: &length, Type: "text/html",
			Links: []resourcesync.Link{{Rel: "collection", Href: "https://example.org/all"}}, Attrs: []resourcesync.Attr{{Namespace: "urn:x", Name: "y", Value: `"z"`}},
		},
		{Loc: "https://example.org/c", Change: resourcesync.Deleted},
	})
}

var writer = Writer{Base: "https://hub.example.org"}

// Written events equal the golden files, and are read as the same changes.
func TestWrite(t *testing.T) {
	b := sample()
	page := writer.Page().Append(nil, b, "https://hub.example.org/next")
	golden(t, "page.json", page)
	var messages []byte
	b.Diverged = true
	f := writer.Message()
	for one := range b.Singles() {
		messages = append(f.Append(messages, one, ""), '\n')
	}
	messages = append(f.Append(messages, &feed.Batch{Set: "demo", After: b.After, Cursor: b.Cursor}, ""), '\n')
	messages = append(f.Append(messages, &feed.Batch{Set: "demo"}, ""), '\n')
	golden(t, "messages.ndjson", messages)
	if empty := writer.Page().Append(nil, &feed.Batch{Set: "demo"}, "n"); string(empty) != "[]\n" {
		t.Errorf("got the empty page %s, want []", empty)
	}
	if !json.Valid(page) {
		t.Error("got a page with invalid JSON")
	}

	changes, _, err := read(page, BatchMediaType, "")
	if err != nil || len(changes) != 3 {
		t.Fatalf("read() of a page: got %d changes, %v, want 3", len(changes), err)
	}
	for i := range b.Entries {
		want := b.Entries[i].Change
		want.Datetime = b.Entries[i].Time() // for the reader of the page, the hub is the source
		if got := string(resourcesync.AppendJSONMembers(nil, &changes[i])); got != string(resourcesync.AppendJSONMembers(nil, &want)) {
			t.Errorf("read() of change %d: got %s, want the written change", i, got)
		}
	}
}
