package conformance

import (
	"encoding/xml"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// A page is a document of the standard. This reader shares no code with the hub.
type page struct {
	XMLName xml.Name
	MD      []md  `xml:"http://www.openarchives.org/rs/terms/ md"`
	Links   []ln  `xml:"http://www.openarchives.org/rs/terms/ ln"`
	URLs    []one `xml:"http://www.sitemaps.org/schemas/sitemap/0.9 url"`
	Parts   []one `xml:"http://www.sitemaps.org/schemas/sitemap/0.9 sitemap"`
	size    int
}

type md struct {
	Capability string `xml:"capability,attr"`
	At         string `xml:"at,attr"`
	Completed  string `xml:"completed,attr"`
	From       string `xml:"from,attr"`
	Until      string `xml:"until,attr"`
	Change     string `xml:"change,attr"`
	Datetime   string `xml:"datetime,attr"`
	Hash       string `xml:"hash,attr"`
	Path       string `xml:"path,attr"`
}

type ln struct {
	Rel  string `xml:"rel,attr"`
	Href string `xml:"href,attr"`
	Path string `xml:"path,attr"`
}

type one struct {
	Loc     []string `xml:"http://www.sitemaps.org/schemas/sitemap/0.9 loc"`
	Lastmod string   `xml:"http://www.sitemaps.org/schemas/sitemap/0.9 lastmod"`
	MD      []md     `xml:"http://www.openarchives.org/rs/terms/ md"`
	Links   []ln     `xml:"http://www.openarchives.org/rs/terms/ ln"`
}

func (p *page) link(rel string) string {
	for _, l := range p.Links {
		if l.Rel == rel {
			return l.Href
		}
	}
	return ""
}

func (p *page) entries() []one { return append(slices.Clone(p.URLs), p.Parts...) }

// w3c matches the datetimes that section 7 requires.
var w3c = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$`)

// hashes matches the values of hash in section 7.
var hashes = regexp.MustCompile(`^[a-z0-9-]+:[0-9a-f]+( [a-z0-9-]+:[0-9a-f]+)*$`)

// needs is Table 4 of core 1.1 with section 3 of Change Notification: the times of documents and
// entries. m means must, n must not, o may.
var needs = map[string]struct{ at, from, up, entryAt, entryFrom string }{
	"description":         {"n", "n", "n", "n", "n"},
	"capabilitylist":      {"n", "n", "m", "n", "n"},
	"resourcelist":        {"m", "n", "m", "o", "n"},
	"changelist":          {"n", "m", "m", "n", "o"},
	"change-notification": {"n", "m", "o", "n", "n"},
}

// strict returns the violations of the standard in a document.
func strict(body []byte) (p *page, faults []string) {
	add := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	p = &page{size: len(body)}
	if err := xml.Unmarshal(body, p); err != nil {
		return p, []string{err.Error()}
	}
	index := p.XMLName.Local == "sitemapindex"
	if p.XMLName.Space != "http://www.sitemaps.org/schemas/sitemap/0.9" || !index && p.XMLName.Local != "urlset" || index && len(p.URLs) > 0 || !index && len(p.Parts) > 0 {
		add("section 7: got root %v with %d url and %d sitemap", p.XMLName, len(p.URLs), len(p.Parts))
	}
	if len(p.MD) != 1 {
		return p, append(faults, fmt.Sprintf("section 7: got %d rs:md, want 1", len(p.MD)))
	}
	head := p.MD[0]
	need, known := needs[head.Capability]
	if !known {
		return p, append(faults, fmt.Sprintf("section 7: unknown capability %q", head.Capability))
	}
	has := func(what, value, needed string) {
		if needed == "m" && value == "" || needed == "n" && value != "" {
			add("Table 4: %s of a %s = %q", what, head.Capability, value)
		}
		if value != "" && what != "up" && !w3c.MatchString(value) {
			add("section 7: %s = %q", what, value)
		}
	}
	has("at", head.At, need.at)
	has("from", head.From, need.from)
	has("completed", head.Completed, map[bool]string{true: "n", false: "o"}[head.At == ""])
	has("until", head.Until, map[bool]string{true: "n", false: "o"}[head.From == ""])
	has("up", p.link("up"), need.up)
	if head.Capability == "change-notification" && head.Until == "" {
		add("Change Notification section 3: until is missing")
	}
	if n := len(p.entries()); n > 50_000 || p.size > 50<<20 {
		add("section 7: got %d entries, %d bytes", n, p.size)
	}
	links := slices.Clone(p.Links)
	last := time.Time{}
	for i, e := range p.entries() {
		links = append(links, e.Links...)
		if len(e.Loc) != 1 || !strings.Contains(e.Loc[0], "://") || len(e.MD) > 1 {
			add("section 7: entry %d: got %d loc and %d rs:md", i+1, len(e.Loc), len(e.MD))
			continue
		}
		if e.Lastmod != "" {
			if _, err := time.Parse(time.RFC3339Nano, e.Lastmod); err != nil {
				add("section 7: lastmod of entry %d = %q", i+1, e.Lastmod)
			}
		}
		var m md
		if len(e.MD) == 1 {
			m = e.MD[0]
		}
		if m.Path != "" {
			add("section 7: entry %d has path %q outside of a manifest", i+1, m.Path)
		}
		if m.Hash != "" && !hashes.MatchString(m.Hash) {
			add("section 7: hash of entry %d = %q", i+1, m.Hash)
		}
		has(fmt.Sprintf("at of entry %d", i+1), m.At, need.entryAt)
		has(fmt.Sprintf("from of entry %d", i+1), m.From, need.entryFrom)
		switch changes := !index && (head.Capability == "changelist" || head.Capability == "change-notification"); {
		case changes && !slices.Contains([]string{"created", "updated", "deleted"}, m.Change):
			add("section 12.1: change of entry %d = %q", i+1, m.Change)
		case !changes && (m.Change != "" || m.Datetime != ""):
			add("Table 4: entry %d of a %s has a change or a datetime", i+1, head.Capability)
		case changes && m.Datetime != "":
			at, err := time.Parse(time.RFC3339Nano, m.Datetime)
			from, _ := time.Parse(time.RFC3339Nano, head.From)
			until, _ := time.Parse(time.RFC3339Nano, head.Until)
			if err != nil || at.Before(from) || head.Until != "" && at.After(until) || at.Before(last) {
				add("section 12.1: datetime of entry %d = %q, list from %q to %q, previous %v", i+1, m.Datetime, head.From, head.Until, last)
			}
			last = at
		case (head.Capability == "description" || head.Capability == "capabilitylist") && m.Capability == "":
			add("sections 8 and 9: entry %d has no capability", i+1)
		}
	}
	for _, l := range links {
		if l.Rel == "" || l.Href == "" || l.Path != "" {
			add("section 7: invalid link %+v", l)
		}
	}
	return p, faults
}

// TestStrict checks that the reader detects each violation.
func TestStrict(t *testing.T) {
	t.Parallel()
	const head, up = `<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/">`, `<rs:ln rel="up" href="https://example.org/capabilitylist.xml"/>`
	list := func(md, entry string) string { return head + up + `<rs:md ` + md + `/>` + entry + `</urlset>` }
	entry := func(md string) string { return `<url><loc>https://example.org/a</loc><rs:md ` + md + `/></url>` }
	const from = `capability="changelist" from="2026-01-01T00:00:00Z"`
	for _, right := range []string{list(from, entry(`change="created" datetime="2026-01-02T00:00:00Z"`)), list(`capability="resourcelist" at="2026-01-01T00:00:00Z"`, entry(`hash="md5:00"`))} {
		if _, faults := strict([]byte(right)); len(faults) > 0 {
			t.Errorf("strict(%s) = %q, want no faults", right, faults)
		}
	}
	for text, says := range map[string]string{
		"":                                  "EOF",
		head + up + `</urlset>`:             "0 rs:md",
		list(`capability="other"`, ""):      `"other"`,
		list(`capability="changelist"`, ""): "from",
		list(from+` at="2026-01-01T00:00:00Z"`, ""):                                                                "at of a changelist",
		list(`capability="changelist" from="2026-01-01"`, ""):                                                      `from = "2026-01-01"`,
		head + `<rs:md ` + from + `/></urlset>`:                                                                    "up of a changelist",
		list(`capability="change-notification" from="2026-01-01T00:00:00Z"`, ""):                                   "until is missing",
		list(from, entry(`change="moved"`)):                                                                        `"moved"`,
		list(from, entry(`change="created" path="/a"`)):                                                            "path",
		list(from, entry(`change="created" hash="md5"`)):                                                           "hash",
		list(from, entry(`change="created" datetime="2025-01-01T00:00:00Z"`)):                                      "datetime of entry 1",
		list(from, `<url><rs:md change="created"/></url>`):                                                         "0 loc",
		list(from, `<sitemap><loc>https://example.org/a</loc></sitemap>`):                                          "1 sitemap",
		list(`capability="resourcelist" at="2026-01-01T00:00:00Z"`, entry(`change="a"`)):                           "change",
		list(`capability="capabilitylist"`, entry(`hash="md5:00"`)):                                                "no capability",
		head + `<rs:ln rel="up"/><rs:md ` + from + `/></urlset>`:                                                   "invalid link",
		list(from, strings.Repeat(`<url><loc>https://example.org/a</loc><rs:md change="created"/></url>`, 50_001)): "50001 entries",
	} {
		if _, faults := strict([]byte(text)); !strings.Contains(strings.Join(faults, "\n"), says) {
			t.Errorf("strict(%.200s) = %q, want %q", text, faults, says)
		}
	}
}

// A walk reads documents from the Source Description on, and each only once.
type walk struct {
	*testing.T
	seen map[string]*page
}

// read reads a document, and checks its capability and whether it is an index.
func (w *walk) read(url, capability string, index bool) *page {
	w.Helper()
	if p := w.seen[url]; p != nil {
		return p
	}
	a := hubtest.Must(w, http.StatusOK, http.MethodGet, url, nil)
	p, faults := strict(a.Body)
	for _, f := range faults {
		w.Errorf("%s: %s", url, f)
	}
	if kind := a.Header.Get("Content-Type"); kind != "application/xml" {
		w.Errorf("Content-Type of %s = %s, want application/xml", url, kind)
	}
	if len(p.MD) != 1 || p.MD[0].Capability != capability || (p.XMLName.Local == "sitemapindex") != index {
		w.Fatalf("got %s with %+v, want a %s, index %v", url, p.MD, capability, index)
	}
	w.seen[url] = p
	return p
}

// set walks all documents of a set, from its Capability List on. It returns their numbers of changes
// and of resources.
func (w *walk) set(list, description string) (changes, resources int) {
	l := w.read(list, "capabilitylist", false)
	if up := l.link("up"); up != description {
		w.Errorf("section 9: up of %s = %s", list, up)
	}
	offers := map[string]one{}
	for _, e := range l.URLs {
		if _, twice := offers[e.MD[0].Capability]; twice {
			w.Errorf("section 9: %s has %s twice", list, e.MD[0].Capability)
		}
		offers[e.MD[0].Capability] = e
	}
	up := func(url string, p *page) {
		if p.link("up") != list {
			w.Errorf("Table 4: up of %s = %q", url, p.link("up"))
		}
	}
	index := offers["changelist"].Loc[0]
	all := w.read(index, "changelist", true)
	up(index, all)
	until := all.MD[0].From
	for i, part := range all.Parts {
		p := w.read(part.Loc[0], "changelist", false)
		up(part.Loc[0], p)
		if p.link("index") != index || len(part.MD) != 1 || part.MD[0].From != p.MD[0].From || part.MD[0].Until != p.MD[0].Until || p.MD[0].From != until || p.MD[0].Until == "" && i < len(all.Parts)-1 {
			w.Errorf("section 12.2: list %d of %s: got %+v, index %+v, previous until %s", i+1, index, p.MD[0], part.MD, until)
		}
		until = p.MD[0].Until
		changes += len(p.URLs)
	}
	if r, ok := offers["resourcelist"]; ok {
		resources = w.resources(r.Loc[0], up)
	}
	topic := offers["change-notification"]
	if !slices.ContainsFunc(topic.Links, func(l ln) bool { return l.Rel == "hub" && l.Href != "" }) {
		w.Errorf("Change Notification section 5: %s has no hub for %v", list, topic.Loc)
	}
	a := hubtest.Must(w, http.StatusOK, http.MethodGet, topic.Loc[0], nil)
	links := a.Header.Get("Link")
	if !strings.Contains(links, `<`+topic.Loc[0]+`>; rel="self"`) || !strings.Contains(links, `rel="hub"`) || !strings.Contains(links, `<`+list+`>; rel="resourcesync"`) || a.Header.Get("Content-Type") != "application/xml" {
		w.Errorf("Change Notification section 4.1: header of %s = %v", topic.Loc[0], a.Header)
	}
	if len(a.Body) > 0 {
		w.read(topic.Loc[0], "change-notification", false)
	}
	return changes, resources
}

// resources walks a Resource List, which may be an index. It returns the number of resources, and
// checks that they are unique.
func (w *walk) resources(url string, up func(string, *page)) int {
	a := hubtest.Must(w, http.StatusOK, http.MethodGet, url, nil)
	index := strings.Contains(string(a.Body[:200]), "<sitemapindex")
	all := w.read(url, "resourcelist", index)
	up(url, all)
	parts := []*page{all}
	if index {
		parts = nil
		for _, e := range all.Parts {
			p := w.read(e.Loc[0], "resourcelist", false)
			up(e.Loc[0], p)
			if p.link("index") != url || p.MD[0].At != all.MD[0].At {
				w.Errorf("section 10: got %s with %+v, index %+v", e.Loc[0], p.MD[0], all.MD[0])
			}
			parts = append(parts, p)
		}
	}
	seen := map[string]bool{}
	n := 0
	for _, p := range parts {
		for _, e := range p.URLs {
			seen[e.Loc[0]] = true
			n++
		}
	}
	if len(seen) != n {
		w.Errorf("section 10.1: %s has %d resources, %d different ones", url, n, len(seen))
	}
	return n
}

// TestWalk reads all documents of a hub with ten sets according to the text of the standard. The sets
// include an empty, a private and an incomplete one, one for readers of core 1.0, and one with
// 60,000 resources.
func TestWalk(t *testing.T) {
	t.Parallel()
	tokens := t.TempDir() + "/tokens"
	if err := os.WriteFile(tokens, []byte("anyone - follow:*\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	token := hubtest.NewToken(t, tokens, "source", "publish:*,follow:*")
	h := hubtest.StartHub(t, "RSHUB_RESOURCELIST_INTERVAL=1s", "RSHUB_CHANGELIST_SIZE=7000", "RSHUB_DESCRIBED_BY=https://example.org/about", "RSHUB_TOKENS_FILE="+tokens)
	auth := "Authorization: Bearer " + token
	describe := func(set, text string) {
		t.Helper()
		hubtest.Must(t, http.StatusOK, http.MethodPut, h.URL+"/sets/"+set, []byte(text), hubtest.AsJSON, auth)
	}
	type size struct {
		about              string
		changes, resources int
	}
	sets := map[string]size{
		"large": {`{}`, 60_000, 60_000}, "empty": {`{"title":"nothing yet"}`, 0, 0}, "incomplete": {`{}`, 5, 0}, "private": {`{"private":true}`, 3, 3},
		"old": {`{"lastmod":"datetime","describedby":"https://example.org/old"}`, 10, 10}, "seconds": {`{"lastmod":"seconds"}`, 10, 10}, "nopush": {`{"push":"off"}`, 1, 1},
		"more1": {`{}`, 100, 100}, "more2": {`{}`, 7_000, 7_000}, "more3": {`{}`, 7_001, 7_001},
	}
	for set, size := range sets {
		describe(set, size.about)
		if size.changes > 0 {
			hubtest.Publish(t, h, set, hubtest.Changes(set, size.changes), auth)
		}
		if size.resources > 0 {
			describe(set, `{"complete":true}`)
		}
	}
	w := &walk{T: t, seen: map[string]*page{}}
	for set, size := range sets {
		if size.resources == 0 || set == "private" {
			continue
		}
		hubtest.WaitOK(t, h.URL+"/sets/"+set+"/resourcelist.xml")
	}
	url := h.URL + "/.well-known/resourcesync"
	description := w.read(url, "description", false)
	if description.link("describedby") != "https://example.org/about" || len(description.URLs) != len(sets)-1 {
		t.Errorf("section 8: got %d sets and links %v", len(description.URLs), description.Links)
	}
	for _, e := range description.URLs {
		set := strings.TrimSuffix(strings.TrimPrefix(e.Loc[0], h.URL+"/sets/"), "/capabilitylist.xml")
		size, known := sets[set]
		if !known || set == "private" || e.MD[0].Capability != "capabilitylist" {
			t.Fatalf("section 8: got entry %+v, want a public set", e)
		}
		if set == "nopush" {
			if l := w.read(e.Loc[0], "capabilitylist", false); len(l.URLs) != 2 {
				t.Errorf("got Capability List without push of %d entries, want 2", len(l.URLs))
			}
			continue
		}
		if changes, resources := w.set(e.Loc[0], url); changes != size.changes || resources != size.resources {
			t.Errorf("set %s: got %d changes and %d resources, want %+v", set, changes, resources, size)
		}
	}
	if len(w.seen) < 40 {
		t.Errorf("read %d documents, want at least 40", len(w.seen))
	}
}
