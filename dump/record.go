package dump

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rshub/rshub/dump/place"
	"github.com/rshub/rshub/feed"
)

// A record says what the place has of a set. It is a file there itself, so all hubs read the
// same. What it does not name is not served, so nothing is served that is not whole. It is
// replaced as a whole, after the files that it names are durable.
type record struct {
	Begin int64  `json:"begin"` // when the set's log began; of another log, all of it is void
	First uint64 `json:"first"` // the first Change List of which there is a dump: the one that was open when dumps were turned on

	Resources []made `json:"resources,omitempty"` // Resource Dumps, oldest first; two at most
	Changes   []made `json:"changes,omitempty"`   // Change Dumps, by list, without gaps

	// What is being made.
	BegunResources *begun `json:"begunResources,omitempty"`
	GivenUp        *made  `json:"givenUp,omitempty"` // packages of a first Resource Dump that could not be gone on with; the next takes contents from there
	BegunChanges   *begun `json:"begunChanges,omitempty"`
}

// A made is a dump of one root of the inventory, or of one closed Change List.
type made struct {
	Name      string      `json:"name"`           // begins the names of its files
	List      uint64      `json:"list,omitempty"` // the Change List; 0: it is a Resource Dump
	Log       string      `json:"log,omitempty"`  // the list's log and epoch
	From      feed.Cursor `json:"from"`           // of a Change Dump: the cursor before its first change
	At        feed.Cursor `json:"at"`             // what the root holds, or the newest change of the list
	Completed time.Time   `json:"completed"`
	Packages  []pack      `json:"packages"`
}

// A begun is a dump that is being made. Its packages are whole.
type begun struct {
	made
	After string `json:"after,omitempty"` // the last resource that is packed, of a Resource Dump
}

// A pack is a package: a ZIP file, a copy of its manifest, and perhaps a document that
// names what is missing in it.
type pack struct {
	Number    int         `json:"number"` // from 1
	Stamp     string      `json:"stamp"`  // is part of the names of its files, and of no others: two hubs may make the same package
	From      feed.Cursor `json:"from"`   // of a Change Dump: the cursor before its first change
	At        feed.Cursor `json:"at"`     // of a Change Dump: that of its last change
	Completed time.Time   `json:"completed"`
	Resources int         `json:"resources"` // that the manifest names
	Missing   int         `json:"missing"`

	Last string `json:"last,omitempty"` // of a Resource Dump: the loc of the last resource

	Zip      file `json:"zip"`
	Manifest file `json:"manifest"`
	Named    file `json:"named"` // the document that names what is missing; the zero file: nothing is
}

// A file is one in the place.
type file struct {
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"` // lower-case hex
}

// The ends of the names of a package's files.
const (
	zipEnd      = ".zip"
	manifestEnd = "-manifest.xml"
	missingEnd  = "-missing.xml"
)

// name returns the name of a file of a package.
func (m *made) name(p *pack, end string) string {
	return m.Name + "-" + strconv.Itoa(p.Number) + "-" + p.Stamp + end
}

// isEmpty reports whether a dump has nothing to show.
func (m *made) isEmpty() bool { return len(m.Packages) == 0 }

// missing returns how many resources or changes are missing in all packages.
func (m *made) missing() (n int) {
	for i := range m.Packages {
		n += m.Packages[i].Missing
	}
	return n
}

// newStamp returns a stamp that no other package has.
func newStamp() string { return strings.ToLower(rand.Text()[:12]) }

// listLog returns when the log of a Change List began, and the list's epoch. Another list of
// the same number has another one.
func listLog(st *feed.State, n uint64) string {
	begin := strconv.FormatInt(st.Begin, 10)
	if epoch := st.Epochs.Of(n); epoch != "" {
		return begin + "." + epoch
	}
	return begin
}

// dirOf returns the directory of a set in the place.
func dirOf(set string) string { return set + "/" }

const recordName = "dumps.json"

// maxRecord bounds a record in bytes: there may be packages of 50,000 lists.
const maxRecord = 64 << 20

// readRecord reads the record of a set; the zero record if there is none.
func readRecord(ctx context.Context, p place.Place, set string) (rec *record, err error) {
	for try := 1; ; try++ { // another hub may just replace it, and S3 is asked twice: for its size, and for its bytes
		if rec, err = readOnce(ctx, p, dirOf(set)+recordName); err == nil || try == 3 {
			return rec, err
		}
	}
}

func readOnce(ctx context.Context, p place.Place, name string) (*record, error) {
	rec := new(record)
	f, err := p.Open(ctx, name)
	if errors.Is(err, place.ErrAbsent) {
		return rec, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxRecord))
	if err == nil {
		err = json.Unmarshal(text, rec)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return rec, nil
}

// writeRecord replaces the record of a set.
func writeRecord(ctx context.Context, p place.Place, set string, rec *record) error {
	text, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	w, err := p.Create(ctx, dirOf(set)+recordName)
	if err != nil {
		return err
	}
	if _, err := io.Copy(w, bytes.NewReader(text)); err != nil {
		w.Abort()
		return fmt.Errorf("write %s%s: %w", dirOf(set), recordName, err)
	}
	return w.Commit()
}

// fits makes a record one of a state of the set. What belongs to another log, or to a list
// that was filled anew, is dropped, and so are the dumps of lists that retention removed.
func (r *record) fits(st *feed.State) {
	oldest, open := st.Lists()
	if r.Begin != st.Begin {
		*r = record{Begin: st.Begin, First: open}
	}
	void := func(m *made) bool { return m.List >= open || m.Log != listLog(st, m.List) }
	for i := range r.Changes {
		if void(&r.Changes[i]) {
			r.Changes = r.Changes[:i]
			break
		}
	}
	r.Changes = slices.DeleteFunc(r.Changes, func(m made) bool { return m.List < oldest })
	r.First = max(r.First, oldest)
	if b := r.BegunChanges; b != nil && (b.List != r.next() || void(&b.made)) {
		r.BegunChanges = nil
	}
}

// next returns the number of the Change List whose dump comes next.
func (r *record) next() uint64 {
	if n := len(r.Changes); n > 0 {
		return r.Changes[n-1].List + 1
	}
	return r.First
}

// clone returns a copy that shares nothing that changes.
func (r *record) clone() *record {
	c := *r
	c.Resources, c.Changes = slices.Clone(r.Resources), slices.Clone(r.Changes)
	c.BegunResources, c.BegunChanges = r.BegunResources.clone(), r.BegunChanges.clone()
	return &c
}

func (b *begun) clone() *begun {
	if b == nil {
		return nil
	}
	c := *b
	c.Packages = slices.Clone(b.Packages)
	return &c
}

// resourceDump returns the newest Resource Dump, or nil.
func (r *record) resourceDump() *made {
	if n := len(r.Resources); n > 0 {
		return &r.Resources[n-1]
	}
	return nil
}

// names returns the names of all files that the record names.
func (r *record) names() map[string]bool {
	all := map[string]bool{recordName: true}
	of := func(m *made) {
		for i := range m.Packages {
			p := &m.Packages[i]
			all[m.name(p, zipEnd)], all[m.name(p, manifestEnd)] = true, true
			if p.Missing > 0 {
				all[m.name(p, missingEnd)] = true
			}
		}
	}
	for i := range r.Resources {
		of(&r.Resources[i])
	}
	for i := range r.Changes {
		of(&r.Changes[i])
	}
	for _, b := range []*begun{r.BegunResources, r.BegunChanges} {
		if b != nil {
			of(&b.made)
		}
	}
	if r.GivenUp != nil {
		of(r.GivenUp)
	}
	return all
}

var fileName = regexp.MustCompile(`^((?:resource|change)dump-[a-z0-9.-]+)-([1-9][0-9]{0,8})-([a-z0-9]+)(\.zip|-manifest\.xml|-missing\.xml)$`)

// find returns the file of a name, and its media type. What is being made is not found.
func (r *record) find(name string) (f file, mediaType string, ok bool) {
	parts := fileName.FindStringSubmatch(name)
	if parts == nil {
		return f, "", false
	}
	dumps := r.Changes
	if strings.HasPrefix(name, resourceKind) {
		dumps = r.Resources
	}
	i := slices.IndexFunc(dumps, func(m made) bool { return m.Name == parts[1] })
	n, err := strconv.Atoi(parts[2])
	if i < 0 || err != nil || n > len(dumps[i].Packages) {
		return f, "", false
	}
	p := &dumps[i].Packages[n-1]
	switch end := parts[4]; {
	case p.Stamp != parts[3]:
		return f, "", false
	case end == zipEnd:
		return p.Zip, "application/zip", true
	case end == manifestEnd:
		return p.Manifest, "application/xml", true
	}
	return p.Named, "application/xml", p.Missing > 0
}

// The kinds of dumps, as the names of their files begin.
const (
	resourceKind = "resourcedump"
	changeKind   = "changedump"
)
