package documents_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/documents"
	"github.com/rshub/rshub/resourcesync"
)

// Readers of core 1.0 find a lastmod on every entry, which ascends, and no fractions if they
// know none. Each list is closed by its until, and a name means one list.
func TestLastmod(t *testing.T) {
	sh := &shelf{}
	m, s := filled(t, 4, 0, documents.Options{Inventories: sh})
	for range 5 {
		m.advance(300 * time.Millisecond)
		m.add("peps", 2)
	}
	sh.put(7, 4, func(i int) resourcesync.Change { return change(uint64(i) + 1) })
	read := func(url string) *resourcesync.Document {
		t.Helper()
		d, err := resourcesync.ReadXML(bytes.NewReader(s.get(url).Body.Bytes()), resourcesync.Limits{})
		if err != nil {
			t.Fatalf("GET %s: %v", url, err)
		}
		return d
	}
	names, tags := map[string]bool{}, map[string]bool{}
	for _, mode := range []feed.Lastmod{feed.LastmodSource, feed.LastmodDatetime, feed.LastmodSeconds} {
		m.describe("peps", feed.Description{Lastmod: mode})
		lists := []string{"/sets/peps/changelist.xml", "/sets/peps/changelist.xml?from=" + began.Add(time.Second).UTC().Format(time.RFC3339)}
		lists = append(lists, s.named("/sets/peps/changelist-index.xml")...)
		for old := range names {
			if w := s.get(old); w.Code != 404 {
				t.Errorf("%s: %s is %d", mode, old, w.Code)
			}
		}
		for _, url := range append([]string{"/sets/peps/changelist-index.xml", "/sets/peps/resourcelist.xml"}, lists...) {
			w := s.get(url)
			if tag := w.Header().Get("Etag"); tags[tag] {
				t.Errorf("%s: %s has the ETag of another", mode, url)
			} else {
				tags[tag] = true
			}
			times := 0
			for _, text := range strings.FieldsFunc(w.Body.String(), func(r rune) bool { return strings.ContainsRune("<>\"", r) }) {
				if _, err := resourcesync.ParseTime(text); err != nil || !strings.Contains(text, "T") {
					continue
				}
				if times++; mode == feed.LastmodSeconds && strings.Contains(text, ".") {
					t.Errorf("%s has the time %s", url, text)
				}
			}
			if times == 0 {
				t.Errorf("%s has no time", url)
			}
		}
		for _, it := range read("/sets/peps/resourcelist.xml").Items {
			if mode != feed.LastmodSource && it.Lastmod.Before(began.Add(-time.Second)) {
				t.Errorf("%s: the Resource List has the lastmod %v of the source", mode, it.Lastmod)
			}
		}
		for _, url := range lists {
			if strings.Contains(url, "changelist-") {
				names[url] = true
			}
			d, last := read(url), time.Time{}
			if len(d.Items) == 0 {
				t.Fatalf("%s is empty", url)
			}
			for _, it := range d.Items {
				if it.Datetime.Before(d.From) || !d.Until.IsZero() && it.Datetime.After(d.Until) {
					t.Errorf("%s, %s: %v is not between %v and %v", mode, url, it.Datetime, d.From, d.Until)
				}
				if mode == feed.LastmodSource {
					continue
				}
				if !it.Lastmod.Equal(it.Datetime) || it.Lastmod.Before(last) {
					t.Errorf("%s, %s: the lastmod %v of %v comes behind %v", mode, url, it.Lastmod, it.Datetime, last)
				}
				last = it.Lastmod
			}
			if has := strings.Contains(s.get(url).Body.String(), "h:sourceLastmod="); has != (mode != feed.LastmodSource) {
				t.Errorf("%s, %s: the lastmod of the source: %t", mode, url, has)
			}
		}
	}
}
