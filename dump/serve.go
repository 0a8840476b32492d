package dump

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/rshub/rshub/dump/place"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/problem"
	"github.com/rshub/rshub/resourcesync"
)

// A view is a record that was read a moment ago. Nobody changes it.
type view struct {
	rec  *record
	read time.Time
}

// viewFor is for how long a record is not read again, to serve from it.
const viewFor = time.Second

// view returns a state of a set, and the record that fits it.
func (m *Maker) view(ctx context.Context, set string) (feed.State, *record, error) {
	st, err := m.log.State(ctx, set)
	if err != nil {
		return st, nil, fmt.Errorf("state of set %q: %w", set, err)
	}
	if !st.Dumps {
		return st, &record{}, nil
	}
	m.mu.Lock()
	v, ok := m.views[set]
	m.mu.Unlock()
	if !ok || time.Since(v.read) > viewFor {
		rec, err := readRecord(ctx, m.place, set)
		if err != nil && !ok {
			return st, nil, fmt.Errorf("%w: %v", feed.ErrUnavailable, err)
		}
		if err != nil { // what was whole still is
			m.opts.Logger.WarnContext(ctx, "the place for content cannot be read", "set", set, "err", err)
			rec = v.rec
		}
		v = view{rec, time.Now()}
		m.mu.Lock()
		m.views[set] = v
		m.mu.Unlock()
	}
	rec := v.rec.clone() // fits changes it
	rec.fits(&st)
	return st, rec, nil
}

// Has reports which documents there are of a set: a Resource Dump, a Change Dump.
func (m *Maker) Has(ctx context.Context, set string) (resources, changes bool, err error) {
	_, rec, err := m.view(ctx, set)
	if err != nil {
		return false, false, err
	}
	return rec.resourceDump() != nil, len(rec.Changes) > 0, nil
}

// Serve answers a GET or HEAD of a document or a file of a set's dumps, or returns an error
// without having answered anything. name is the part of the URL behind that of the set.
// Whether the caller may follow the set has been checked before. shared says that caches may
// give the answer to other callers.
func (m *Maker) Serve(w http.ResponseWriter, r *http.Request, set, name string, shared bool) error {
	st, rec, err := m.view(r.Context(), set)
	if err != nil {
		return err
	}
	d := &documents{m.base, &st, rec, m.opts.most}
	var doc *resourcesync.Document
	switch name {
	case "resourcedump.xml":
		doc = d.resourceDump(0)
	case "changedump.xml":
		doc = d.changeDump()
	default:
		name = strings.TrimPrefix(name, "content/")
		if f, mediaType, ok := rec.find(name); ok {
			return m.serveFile(w, r, set, name, f, mediaType, shared)
		}
		doc = d.named(name)
	}
	if doc == nil {
		return m.absent(&st, name)
	}
	text := d.xml(doc)
	sum := sha256.Sum256(text)
	serve(w, r, "application/xml", base64.RawURLEncoding.EncodeToString(sum[:16]), false, shared, bytes.NewReader(text))
	return nil
}

// absent returns the error for a document that there is not.
func (m *Maker) absent(st *feed.State, name string) error {
	detail := "there is no such file of a dump; " + m.base.CapabilityList(st.Set) + " names the dumps that there are"
	switch {
	case !st.Dumps:
		detail = `the hub makes no dumps of this set; a caller that may publish can turn them on: PUT /sets/NAME with {"dumps":"on"}`
		if name == "resourcedump.xml" && st.ResourceDump != "" {
			detail = "the source's own Resource Dump is " + st.ResourceDump
		} else if name == "changedump.xml" && st.ChangeDump != "" {
			detail = "the source's own Change Dump is " + st.ChangeDump
		}
	case name == "resourcedump.xml":
		detail = "the Resource Dump is not made yet: it is begun when the set has a Resource List"
	case name == "changedump.xml":
		detail = "there is no Change Dump yet: the first one is made when the Change List closes that was open when dumps were turned on"
	}
	return problem.New(http.StatusNotFound, "not-found", detail)
}

// serveFile sends a file of the place.
func (m *Maker) serveFile(w http.ResponseWriter, r *http.Request, set, name string, f file, mediaType string, shared bool) error {
	in, err := m.place.Open(r.Context(), dirOf(set)+name)
	if errors.Is(err, place.ErrAbsent) {
		m.opts.Logger.ErrorContext(r.Context(), "a file of a dump is gone from the place for content", "set", set, "file", name)
		return feed.ErrGone
	}
	if err != nil {
		return fmt.Errorf("%w: %v", feed.ErrUnavailable, err)
	}
	defer in.Close()
	if in.Size() != f.Size {
		return fmt.Errorf("%s of set %q has %d bytes in the place for content, and had %d", name, set, in.Size(), f.Size)
	}
	h := w.Header()
	h.Set("Repr-Digest", "sha-256=:"+digest(f.SHA256)+":")
	if mediaType == "application/zip" {
		h.Set("Content-Disposition", `attachment; filename="`+name+`"`)
	}
	serve(w, r, mediaType, f.SHA256[:32], true, shared, in)
	return nil
}

// serve answers with what in has, with ranges and preconditions (RFC 9110 sections 13 and 14).
func serve(w http.ResponseWriter, r *http.Request, mediaType, tag string, immutable, shared bool, in io.ReadSeeker) {
	h := w.Header()
	h.Set("Content-Type", mediaType)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Etag", `"`+tag+`"`)
	switch {
	case !immutable:
		h.Set("Cache-Control", "no-cache")
	case shared:
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	default:
		h.Set("Cache-Control", "private, max-age=31536000, immutable")
	}
	http.ServeContent(w, r, "", time.Time{}, in)
}

// digest returns a hash in hex as Base64.
func digest(text string) string {
	sum, err := hex.DecodeString(text)
	if err != nil {
		return ""
	}
	return base64.StdEncoding.EncodeToString(sum)
}

// Newest returns the URL of the newest document with packages of a set, of its Resource Dump
// and of its Change Dump, and the version of it, which is another one whenever the document is.
// If the dump is an index of several, the document is the newest that it names. All are empty
// if there is no such dump.
func (m *Maker) Newest(ctx context.Context, set string) (resources, resourcesVersion, changes, changesVersion string, err error) {
	st, rec, err := m.view(ctx, set)
	if err != nil {
		return "", "", "", "", err
	}
	d := &documents{m.base, &st, rec, m.opts.most}
	newest := func(doc *resourcesync.Document, url string) (string, string) {
		if doc == nil {
			return "", ""
		}
		sum := sha256.Sum256(d.xml(doc))
		if doc.Index {
			url = doc.Items[len(doc.Items)-1].Loc
		}
		return url, base64.RawURLEncoding.EncodeToString(sum[:16])
	}
	resources, resourcesVersion = newest(d.resourceDump(0), m.base.ResourceDump(set))
	changes, changesVersion = newest(d.changeDump(), m.base.ChangeDump(set))
	return resources, resourcesVersion, changes, changesVersion, nil
}
