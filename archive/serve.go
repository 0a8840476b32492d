package archive

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

// A view is a record that was read a moment ago.
type view struct {
	rec  *record
	read time.Time
}

// viewFor is for how long a record is not read again, to serve from it.
const viewFor = time.Second

// view returns a state of a set, and the record that fits it.
func (a *Archive) view(ctx context.Context, set string) (feed.State, *record, error) {
	st, err := a.log.State(ctx, set)
	if err != nil {
		return st, nil, fmt.Errorf("state of set %q: %w", set, err)
	}
	if !st.Archives {
		return st, &record{}, nil
	}
	a.mu.Lock()
	v, ok := a.views[set]
	a.mu.Unlock()
	if !ok || time.Since(v.read) > viewFor {
		rec, err := readRecord(ctx, a.place, set)
		if err != nil && !ok {
			return st, nil, fmt.Errorf("%w: %v", feed.ErrUnavailable, err)
		}
		if err != nil { // what was whole still is
			a.opts.Logger.WarnContext(ctx, "the place for content cannot be read", "set", set, "err", err)
			rec = v.rec
		}
		v = view{rec, time.Now()}
		a.mu.Lock()
		a.views[set] = v
		a.mu.Unlock()
	}
	return st, v.rec.fits(&st), nil
}

// Has reports which documents there are of a set: a Change List Archive, a Resource List Archive.
func (a *Archive) Has(ctx context.Context, set string) (changes, resources bool, err error) {
	_, rec, err := a.view(ctx, set)
	if err != nil {
		return false, false, err
	}
	return len(rec.Lists) > 0, len(rec.Resources) > 0, nil
}

// Serve answers a GET or HEAD of a document of a set's archive, or returns an error without
// having answered anything. name is the part of the URL behind that of the set. Whether the
// caller may follow the set has been checked before. shared says that caches may give the
// answer to other callers.
func (a *Archive) Serve(w http.ResponseWriter, r *http.Request, set, name string, shared bool) error {
	st, rec, err := a.view(r.Context(), set)
	if err != nil {
		return err
	}
	d := &documents{a.base, &st, rec, a.opts.most}
	var doc *resourcesync.Document
	switch name {
	case "changelist-archive.xml":
		doc = d.archive(d.changeLists(), 0)
	case "resourcelist-archive.xml":
		doc = d.archive(d.resourceLists(), 0)
	default:
		name = strings.TrimPrefix(name, "archive/")
		if f, ok := rec.file(name); ok {
			return a.serveFile(w, r, set, name, f, shared)
		}
		doc = d.named(name)
	}
	if doc == nil {
		detail := "there is no such document of an archive; " + a.base.CapabilityList(set) + " names what there is"
		switch {
		case !st.Archives:
			detail = `the hub keeps no archive of this set; a caller that may publish can turn it on: PUT /sets/NAME with {"archives":"on"}`
		case name == "changelist-archive.xml":
			detail = "the archive has no Change List yet: each one is archived soon after it is closed"
		case name == "resourcelist-archive.xml":
			detail = "the archive has no Resource List yet: the first one is archived soon after the source has said that the hub knows all resources, unless the operator wants none"
		}
		return problem.New(http.StatusNotFound, "not-found", detail)
	}
	text := d.xml(doc)
	sum := sha256.Sum256(text)
	serve(w, r, base64.RawURLEncoding.EncodeToString(sum[:16]), "no-cache", bytes.NewReader(text))
	return nil
}

// serveFile sends a list from the place.
func (a *Archive) serveFile(w http.ResponseWriter, r *http.Request, set, name string, f file, shared bool) error {
	in, err := a.place.Open(r.Context(), dirOf(set)+name)
	if errors.Is(err, place.ErrAbsent) {
		a.opts.Logger.ErrorContext(r.Context(), "an archived list is gone from the place for content", "set", set, "file", name)
		return feed.ErrGone
	}
	if err != nil {
		return fmt.Errorf("%w: %v", feed.ErrUnavailable, err)
	}
	defer in.Close()
	if in.Size() != f.Size {
		return fmt.Errorf("%s of set %q has %d bytes in the place for content, and had %d", name, set, in.Size(), f.Size)
	}
	if sum, err := hex.DecodeString(f.SHA256); err == nil {
		w.Header().Set("Repr-Digest", "sha-256=:"+base64.StdEncoding.EncodeToString(sum)+":")
	}
	control := "private, max-age=31536000, immutable"
	if shared {
		control = "public, max-age=31536000, immutable"
	}
	serve(w, r, f.SHA256[:32], control, in)
	return nil
}

// serve answers with what in has, with ranges and preconditions (RFC 9110 sections 13 and 14).
func serve(w http.ResponseWriter, r *http.Request, tag, control string, in io.ReadSeeker) {
	h := w.Header()
	h.Set("Content-Type", "application/xml")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Etag", `"`+tag+`"`)
	h.Set("Cache-Control", control)
	http.ServeContent(w, r, "", time.Time{}, in)
}
