package hubtest

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/rshub/rshub/e2e/internal/trial"
	"github.com/rshub/rshub/resourcesync"
)

// ReadMemory reads all entries of a set, page by page.
func ReadMemory(t testing.TB, h *Hub, set string, headers ...string) []trial.Entry {
	t.Helper()
	f := &Follower{Transport: "reading", Set: set, Hub: h, Cursor: "start"}
	for next := h.Topic(set) + "?since=start&limit=10000"; ; {
		m := Get[Message](t, next, headers...)
		f.handleMessage(&m, m.Cursor)
		if len(f.Faults) > 0 {
			t.Fatalf("read memory of %s: %q", set, f.Faults)
		}
		if len(m.Changes) == 0 {
			return f.Entries
		}
		next = m.Next
	}
}

// WantEntries fails the test unless got equals want.
func WantEntries(t testing.TB, who string, got, want []trial.Entry) {
	t.Helper()
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			t.Fatalf("%s: got entry %d\n%+v, want\n%+v", who, i+1, got[i], want[i])
		}
	}
	if len(got) != len(want) {
		t.Fatalf("%s: got %d entries, want %d", who, len(got), len(want))
	}
}

// WantTexts fails the test unless the texts of got equal want.
func WantTexts(t testing.TB, who string, got []trial.Entry, want []string) {
	t.Helper()
	for i := range min(len(got), len(want)) {
		if got[i].Text != want[i] {
			t.Fatalf("%s: got entry %d\n%s, want\n%s", who, i+1, got[i].Text, want[i])
		}
	}
	if len(got) != len(want) {
		t.Fatalf("%s: got %d entries, want %d", who, len(got), len(want))
	}
}

// Document fetches and parses a ResourceSync document.
func Document(t testing.TB, u string) *trial.List {
	t.Helper()
	a := Must(t, http.StatusOK, http.MethodGet, u, nil)
	l, err := trial.ReadList(a.Body)
	if err != nil {
		t.Fatalf("%s: %v", u, err)
	}
	return l
}

// WalkChangeLists walks from the Source Description to every Change List, as a client that knows
// only the standard, and returns all changes.
func WalkChangeLists(t testing.TB, h *Hub, set string) []trial.Entry {
	t.Helper()
	var capabilities string
	for _, it := range Document(t, h.URL+"/.well-known/resourcesync").Items {
		if it.Capability == resourcesync.CapabilityList && strings.Contains(it.Loc, "/"+set+"/") {
			capabilities = it.Loc
		}
	}
	var index string
	for _, it := range Document(t, capabilities).Items {
		if it.Capability == resourcesync.ChangeList {
			index = it.Loc
		}
	}
	lists := Document(t, index)
	if !lists.Index {
		t.Fatalf("%s is not an index", index)
	}
	var all []trial.Entry
	from, cursor := lists.From, ""
	last, size := len(lists.Items)-1, 0 // size is the number of entries of the previous list
	for i, it := range lists.Items {
		list := Document(t, it.Loc)
		if !it.From.Equal(from) || !list.From.Equal(from) || !it.Until.Equal(list.Until) {
			t.Fatalf("list %d: got %v to %v, index %v to %v, want a start at %v", i+1, list.From, list.Until, it.From, it.Until, from)
		}
		if open := list.Until.IsZero(); open && i < last || i == last && i > 0 && open == (len(list.Entries) == size) {
			t.Fatalf("list %d of %d has %d entries, open %t; want only the last list open, unless it is full", i+1, len(lists.Items), len(list.Entries), open)
		}
		size = len(list.Entries)
		for j := range list.Items {
			if d := list.Items[j].Datetime; d.Before(list.From) || !list.Until.IsZero() && d.After(list.Until) {
				t.Fatalf("list %d: entry %d has datetime %v, want %v to %v", i+1, j+1, d, list.From, list.Until)
			}
		}
		if len(all) > 0 && list.After != cursor {
			t.Fatalf("list %d: got after %s, want %s", i+1, list.After, cursor)
		}
		cursor = list.Cursor
		all = append(all, list.Entries...)
		from = list.Until
	}
	return all
}

// ReadSince reads all changes since a datetime from the rolling Change List, document by
// document. Each document repeats the last change of the previous one.
func ReadSince(t testing.TB, h *Hub, set, datetime string) (all []trial.Entry, documents int) {
	t.Helper()
	next := h.URL + "/sets/" + set + "/changelist.xml?from=" + url.QueryEscape(datetime)
	for next != "" {
		doc := Document(t, next)
		documents++
		page := doc.Entries
		if n := len(all); n > 0 {
			if len(page) < 2 || page[0] != all[n-1] {
				t.Fatalf("%s does not start with %+v", next, all[n-1])
			}
			page = page[1:]
		}
		all = append(all, page...)
		next = ""
		for _, l := range doc.Links {
			if l.Rel == "next" {
				next = l.Href
			}
		}
		if (next == "") != doc.Until.IsZero() {
			t.Fatalf("got until %v and next %q, want exactly one of them", doc.Until, next)
		}
	}
	return all, documents
}
