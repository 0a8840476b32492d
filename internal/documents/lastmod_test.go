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

// For clients of core 1.0, every entry has an ascending lastmod, without fractions of a second if the
// description says so. Entries are between from and until, and a name refers to one list.
func TestLastmod(t *testing.T) {
	sh := &inventories{}
	m, s := newFilled(t, 4, 0, documents.Options{Inventories: sh})
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
		lists := []string{"/sets/peps/changelist.xml", "/sets/peps/changelist.xml?from=" + startTime.Add(time.Second).UTC().Format(time.RFC3339)}
		lists = append(lists, s.indexPaths("/sets/peps/changelist-index.xml")...)
		for old := range names {
			if w := s.get(old); w.Code != 404 {
				t.Errorf("%s: GET %s: got %d, want 404", mode, old, w.Code)
			}
		}
		for _, url := range append([]string{"/sets/peps/changelist-index.xml", "/sets/peps/resourcelist.xml"}, lists...) {
			w := s.get(url)
			if tag := w.Header().Get("Etag"); tags[tag] {
				t.Errorf("%s: GET %s: got an ETag of another document, want a new one", mode, url)
			} else {
				tags[tag] = true
			}
			times := 0
			for _, text := range strings.FieldsFunc(w.Body.String(), func(r rune) bool { return strings.ContainsRune("<>\"", r) }) {
				if _, err := resourcesync.ParseTime(text); err != nil || !strings.Contains(text, "T") {
					continue
				}
				if times++; mode == feed.LastmodSeconds && strings.Contains(text, ".") {
					t.Errorf("GET %s: got the time %s, want no fraction", url, text)
				}
			}
			if times == 0 {
				t.Errorf("GET %s: got no times, want some", url)
			}
		}
		for _, it := range read("/sets/peps/resourcelist.xml").Items {
			if mode != feed.LastmodSource && it.Lastmod.Before(startTime.Add(-time.Second)) {
				t.Errorf("%s: lastmod in the Resource List = %v, want the hub's", mode, it.Lastmod)
			}
		}
		for _, url := range lists {
			if strings.Contains(url, "changelist-") {
				names[url] = true
			}
			d, last := read(url), time.Time{}
			if len(d.Items) == 0 {
				t.Fatalf("GET %s: got no items, want some", url)
			}
			for _, it := range d.Items {
				if it.Datetime.Before(d.From) || !d.Until.IsZero() && it.Datetime.After(d.Until) {
					t.Errorf("%s: GET %s: got the datetime %v, want one between %v and %v", mode, url, it.Datetime, d.From, d.Until)
				}
				if mode == feed.LastmodSource {
					continue
				}
				if !it.Lastmod.Equal(it.Datetime) || it.Lastmod.Before(last) {
					t.Errorf("%s: GET %s: got the lastmod %v of %v after %v, want the datetime in ascending order", mode, url, it.Lastmod, it.Datetime, last)
				}
				last = it.Lastmod
			}
			if has := strings.Contains(s.get(url).Body.String(), "h:sourceLastmod="); has != (mode != feed.LastmodSource) {
				t.Errorf("%s: GET %s: got h:sourceLastmod: %t, want %t", mode, url, has, !has)
			}
		}
	}
}
