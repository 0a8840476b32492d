package inventory

import (
	"bytes"
	"fmt"
	"net/http"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// A walker synchronizes with a hub as any ResourceSync client does. It knows where the
// Source Description is, and the standard; and of the hub's own words only the audit.
type walker struct {
	t         testing.TB
	hub       *hubtest.Hub
	set       string
	documents int

	capabilities, resourceList, changeList string // URLs

	held fold
	at   time.Time // held has all changes up to here
}

// schemas are those of the standard.
const schemas = "../../resourcesync/testdata/xsd/"

// read fetches a document, reads it strictly, and holds it against the XML schemas.
func (w *walker) read(u, capability string) *strictDocument {
	w.t.Helper()
	d := w.tryRead(u, capability)
	if d == nil {
		w.t.Fatalf("%s is gone", u)
	}
	return d
}

// tryRead is read of a document that may have been replaced: then it returns nil.
func (w *walker) tryRead(u, capability string) *strictDocument {
	w.t.Helper()
	var d *strictDocument
	hubtest.Until(w.t, u+" is answered", func() error {
		a, err := hubtest.Request(http.MethodGet, u, nil)
		switch {
		case err != nil:
			return err
		case a.Status == http.StatusGone || a.Status == http.StatusNotFound:
			return nil
		case a.Status >= 500:
			return fmt.Errorf("%d: %s", a.Status, a.Body)
		case a.Status != http.StatusOK || !strings.HasPrefix(a.Header.Get("Content-Type"), "application/xml"):
			w.t.Fatalf("%s is answered %d with %s: %s", u, a.Status, a.Header.Get("Content-Type"), a.Body)
		}
		if d, err = readStrictly(u, a.Body); err != nil {
			w.t.Fatal(err)
		}
		return nil
	})
	if d == nil {
		return nil
	}
	if d.md["capability"] != capability {
		w.t.Fatalf("%s is a %s, not a %s", u, d.md["capability"], capability)
	}
	w.documents++
	validate(w.t, d)
	return d
}

// narrow is a media type that the XML schemas refuse, although it is one: their pattern
// has neither dots nor parameters.
var narrow = regexp.MustCompile(` type="[^"]*[^"\w/-][^"]*"`)

// validate holds a document against the XML schemas. They want at least one item, which
// the standard does not.
func validate(t testing.TB, d *strictDocument) {
	t.Helper()
	xmllint, err := exec.LookPath("xmllint")
	if err != nil || len(d.items) == 0 {
		return
	}
	schema := "urlset.xsd"
	if d.index {
		schema = "sitemapindex.xsd"
	}
	cmd := exec.Command(xmllint, "--nonet", "--noout", "--schema", schemas+schema, "-")
	cmd.Stdin = bytes.NewReader(narrow.ReplaceAll(d.text, []byte(` type="a/b"`)))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %.2000s", d.url, err, out)
	}
}

// discover goes from the Source Description to the Capability List of the set, and looks
// what the set offers (sections 6.3, 8 and 9).
func (w *walker) discover() {
	w.t.Helper()
	description := w.hub.URL + "/.well-known/resourcesync"
	w.capabilities, w.resourceList, w.changeList = "", "", ""
	for _, it := range w.read(description, "description").items {
		if strings.Contains(it.loc, "/sets/"+w.set+"/") {
			w.capabilities = it.loc
		}
	}
	list := w.read(w.capabilities, "capabilitylist")
	if up, err := list.link("up"); err != nil || up != description {
		w.t.Fatalf("%s: rel=up leads to %s: %v", w.capabilities, up, err)
	}
	for _, it := range list.items {
		switch it.md["capability"] {
		case "resourcelist":
			w.resourceList = it.loc
		case "changelist":
			w.changeList = it.loc
		}
	}
}

// baseline reads the Resource List, which may be an index (section 10). A part that was
// replaced while the others were read makes the walker begin anew.
func (w *walker) baseline() {
	w.t.Helper()
	for range 20 {
		if w.snapshot() {
			return
		}
	}
	w.t.Fatal("the Resource List is replaced sooner than it can be read")
}

func (w *walker) snapshot() bool {
	w.t.Helper()
	top := w.read(w.resourceList, "resourcelist")
	parts := []*strictDocument{top}
	if top.index {
		parts = nil
		for _, it := range top.items {
			d := w.tryRead(it.loc, "resourcelist")
			if d == nil {
				return false
			}
			if index, err := d.link("index"); err != nil || index != w.resourceList || d.index || d.md["at"] != top.md["at"] || d.md["completed"] != top.md["completed"] {
				w.t.Fatalf("%s of %s at %s: %v, rel=index leads to %s: %v", it.loc, w.resourceList, top.md["at"], d.md, index, err)
			}
			if at := it.md["at"]; at != top.md["at"] {
				w.t.Fatalf("the index says that %s is at %q", it.loc, at)
			}
			parts = append(parts, d)
		}
	}
	held := fold{}
	for _, d := range parts {
		if up, err := d.link("up"); err != nil || up != w.capabilities {
			w.t.Fatalf("%s: rel=up leads to %s: %v", d.url, up, err)
		}
		for _, it := range d.items {
			l := w.line(it)
			if _, twice := held[l.Loc]; twice {
				w.t.Fatalf("%s is in two parts of %s", l.Loc, w.resourceList)
			}
			held[l.Loc] = l
		}
	}
	at, err := top.md.at("at")
	if err != nil {
		w.t.Fatal(err)
	}
	w.held, w.at = held, at
	return true
}

// line is what an item says. The position is the hub's own.
func (w *walker) line(it item) line {
	w.t.Helper()
	l := line{Loc: it.loc, Lastmod: it.lastmod, Hash: it.md["hash"], Change: it.md["change"]}
	if text, ok := it.md["length"]; ok {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			w.t.Fatal(err)
		}
		l.Length = &n
	}
	n, err := strconv.ParseUint(it.md[hubNS+" position"], 10, 64)
	if err != nil {
		w.t.Fatalf("%s: the position: %v", it.loc, err)
	}
	l.Position = n
	return l
}

// increments applies all changes since the walker's time up to another one, from the
// Change Lists (section 12). A change at that very time may come again.
func (w *walker) increments(until time.Time) {
	w.t.Helper()
	top := w.read(w.changeList, "changelist")
	lists := []item{{loc: w.changeList}}
	if top.index {
		lists = top.items
	}
	if from, err := top.md.at("from"); err != nil || from.After(w.at) {
		w.t.Fatalf("the Change Lists begin at %v, and the Resource List is at %v", from, w.at)
	}
	for _, it := range lists {
		closed, err := it.md.at("until")
		if err != nil {
			w.t.Fatal(err)
		}
		if !closed.IsZero() && closed.Before(w.at) {
			continue
		}
		d := w.read(it.loc, "changelist")
		if index, err := d.link("index"); top.index && (err != nil || index != w.changeList) {
			w.t.Fatalf("%s: rel=index leads to %s: %v", it.loc, index, err)
		}
		for _, change := range d.items {
			at, err := change.md.at("datetime")
			if err != nil {
				w.t.Fatal(err)
			}
			if at.Before(w.at) || at.After(until) {
				continue
			}
			w.held.apply(w.line(change))
		}
	}
	w.at = until
}

// audit looks at what the hub holds, follows up to there, and compares.
func (w *walker) audit() look {
	w.t.Helper()
	var l look
	hubtest.Until(w.t, "the hub looks", func() error {
		a, err := hubtest.Request(http.MethodGet, w.hub.URL+"/sets/"+w.set+"/audit", nil)
		if err != nil {
			return err
		}
		if a.Status != http.StatusOK || len(a.Body) > 1024 {
			return fmt.Errorf("%d: %s", a.Status, a.Body)
		}
		hubtest.Decode(w.t, a.Body, &l)
		return nil
	})
	_, datetime, err := hubtest.SplitCursor(l.Cursor)
	if err != nil {
		w.t.Fatal(err)
	}
	until, err := time.Parse(time.RFC3339Nano, datetime)
	if err != nil {
		w.t.Fatal(err)
	}
	if until.Before(w.at) { // the Resource List is as new
		until = w.at
	}
	w.increments(until)
	if got := w.held.look(""); got.Count != l.Count || got.Content != l.Content || got.Position != l.Position {
		w.t.Fatalf("the walker has %+v at %v, and the hub %+v", got, w.at, l)
	}
	return l
}
