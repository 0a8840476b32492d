package e2e

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/resourcesync"
)

// memory reads all that a set's change memory has, page by page.
func memory(t testing.TB, h *hub, set string, headers ...string) []entry {
	t.Helper()
	f := &follower{way: "reading", set: set, hub: h, cursor: "start"}
	for next := h.topic(set) + "?since=start&limit=10000"; ; {
		m := get[message](t, next, headers...)
		f.take(&m, m.Cursor)
		if len(f.faults) > 0 {
			t.Fatalf("the memory of %s: %q", set, f.faults)
		}
		if len(m.Changes) == 0 {
			return f.entries
		}
		next = m.Next
	}
}

// same checks that somebody has exactly what the memory has.
func same(t testing.TB, who string, got, want []entry) {
	t.Helper()
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			t.Fatalf("%s: entry %d is\n%+v, not\n%+v", who, i+1, got[i], want[i])
		}
	}
	if len(got) != len(want) {
		t.Fatalf("%s has %d entries, not %d", who, len(got), len(want))
	}
}

// sameTexts checks that entries are these changes, in this order.
func sameTexts(t testing.TB, who string, got []entry, want []string) {
	t.Helper()
	for i := range min(len(got), len(want)) {
		if got[i].text != want[i] {
			t.Fatalf("%s: entry %d is\n%s, not\n%s", who, i+1, got[i].text, want[i])
		}
	}
	if len(got) != len(want) {
		t.Fatalf("%s has %d entries, not %d", who, len(got), len(want))
	}
}

// A list is a ResourceSync document, and what only the hub's own attributes in
// it say.
type list struct {
	*resourcesync.Document
	after, cursor string
	diverged      bool
	entries       []entry
	changes       []json.RawMessage // the entries, as the hub shows them in JSON
}

// document fetches and reads a ResourceSync document.
func document(t testing.TB, u string) *list {
	t.Helper()
	a := must(t, http.StatusOK, http.MethodGet, u, nil)
	l, err := readList(a.body)
	if err != nil {
		t.Fatalf("%s: %v", u, err)
	}
	return l
}

// readList reads a ResourceSync document.
func readList(b []byte) (*list, error) {
	doc, err := resourcesync.ReadXML(bytes.NewReader(b), resourcesync.Limits{})
	if err != nil {
		return nil, err
	}
	l := &list{Document: doc}
	return l, l.readPlaces(b)
}

// A place is what the hub's attributes say of a rs:md.
type place struct {
	After          string `xml:"https://github.com/rshub/rshub/terms/ after,attr"`
	Cursor         string `xml:"https://github.com/rshub/rshub/terms/ cursor,attr"`
	Diverged       bool   `xml:"https://github.com/rshub/rshub/terms/ diverged,attr"`
	Position       uint64 `xml:"https://github.com/rshub/rshub/terms/ position,attr"`
	SourceDatetime string `xml:"https://github.com/rshub/rshub/terms/ sourceDatetime,attr"`
}

// readPlaces reads the hub's own attributes, which rshub's reader leaves out as
// it leaves out those of anybody who sends them.
func (l *list) readPlaces(b []byte) error {
	var doc struct {
		MD  place `xml:"http://www.openarchives.org/rs/terms/ md"`
		URL []struct {
			MD place `xml:"http://www.openarchives.org/rs/terms/ md"`
		} `xml:"url"`
	}
	if err := xml.Unmarshal(b, &doc); err != nil {
		return err
	}
	l.after, l.cursor, l.diverged = doc.MD.After, doc.MD.Cursor, doc.MD.Diverged
	if l.cursor == "" {
		return nil // no list of changes
	}
	for i := range l.Items {
		c := l.Items[i].Change
		md := doc.URL[i].MD
		members := fmt.Sprintf(`"position":%d,"datetime":"%s"`, md.Position, resourcesync.AppendTimeMicro(nil, c.Datetime.UnixMicro()))
		if md.SourceDatetime != "" {
			members += `,"sourceDatetime":"` + md.SourceDatetime + `"`
		}
		c.Datetime = time.Time{}
		raw := []byte("{" + members + "," + string(resourcesync.AppendJSONMembers(nil, &c)) + "}")
		e, err := parseEntry(raw)
		if err != nil {
			return fmt.Errorf("entry %d: %w", i+1, err)
		}
		l.entries, l.changes = append(l.entries, e), append(l.changes, raw)
	}
	return nil
}

// walk goes from the Source Description to every Change List, as a client does
// that knows nothing but the standard, and returns all changes.
func walk(t testing.TB, h *hub, set string) []entry {
	t.Helper()
	var capabilities string
	for _, it := range document(t, h.url+"/.well-known/resourcesync").Items {
		if it.Capability == resourcesync.CapabilityList && strings.Contains(it.Loc, "/"+set+"/") {
			capabilities = it.Loc
		}
	}
	var index string
	for _, it := range document(t, capabilities).Items {
		if it.Capability == resourcesync.ChangeList {
			index = it.Loc
		}
	}
	lists := document(t, index)
	if !lists.Index {
		t.Fatalf("%s is no index", index)
	}
	var all []entry
	from, cursor := lists.From, ""
	for i, it := range lists.Items {
		last := i == len(lists.Items)-1
		list := document(t, it.Loc)
		if !it.From.Equal(from) || !list.From.Equal(from) || !it.Until.Equal(list.Until) || list.Until.IsZero() != last {
			t.Fatalf("list %d is %v to %v, in the index %v to %v, and the one before ended at %v", i+1, list.From, list.Until, it.From, it.Until, from)
		}
		for j := range list.Items {
			if d := list.Items[j].Datetime; d.Before(list.From) || !last && d.After(list.Until) {
				t.Fatalf("list %d: entry %d has datetime %v, outside of %v to %v", i+1, j+1, d, list.From, list.Until)
			}
		}
		if len(all) > 0 && list.after != cursor {
			t.Fatalf("list %d is after %s, and the one before ends at %s", i+1, list.after, cursor)
		}
		cursor = list.cursor
		all = append(all, list.entries...)
		from = list.Until
	}
	return all
}

// since reads all changes since a datetime from the rolling Change List, from
// one document to the next. The next repeats the last change of the one before.
func since(t testing.TB, h *hub, set, datetime string) (all []entry, documents int) {
	t.Helper()
	next := h.url + "/sets/" + set + "/changelist.xml?from=" + url.QueryEscape(datetime)
	for next != "" {
		doc := document(t, next)
		documents++
		page := doc.entries
		if n := len(all); n > 0 {
			if len(page) < 2 || page[0] != all[n-1] {
				t.Fatalf("%s does not go on with %+v", next, all[n-1])
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
			t.Fatalf("until is %v, and next %q", doc.Until, next)
		}
	}
	return all, documents
}
