// Package documents serves the change memory as the documents of the ResourceSync standard: the
// Source Description, Capability Lists, Change Lists, Resource Lists and their indexes, and the
// latest Change Notification. A destination that pulls requires nothing else.
//
// It reads the change memory and the inventories directly, and does not know package hub or its
// followers. Documents of other standards are encoded by the packages of internal/dialect. Package
// resourcesync writes the XML.
package documents

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/gzip"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/dialect"
	"github.com/rshub/rshub/internal/limit"
	"github.com/rshub/rshub/internal/problem"
	"github.com/rshub/rshub/resourcesync"
)

// A Server serves the change memory as the documents of the ResourceSync standard over HTTP.
// For each set it serves:
//
//	{base}/sets/{set}/changes                                    the latest Change Notification
//	{base}/sets/{set}/changes/{position}                         one change
//	{base}/sets/{set}/.well-known/resourcesync                   a Source Description with only this set
//	{base}/sets/{set}/capabilitylist.xml                         the Capability List
//	{base}/sets/{set}/changelist.xml                             the newest changes, always one open Change List
//	{base}/sets/{set}/changelist.xml?from=DATETIME               exactly the changes since then
//	{base}/sets/{set}/changelist-index.xml                       the Change List Index
//	{base}/sets/{set}/changelist-{begin}-{n}-from-{micros}.xml   the open Change List of the index
//	{base}/sets/{set}/changelist-{begin}-{n}-until-{micros}.xml  a closed Change List of the index
//	{base}/sets/{set}/resourcelist.xml                           the Resource List, or the index of its parts
//	{base}/sets/{set}/resourcelist-{cursor}-{n}-{completed}.xml  a part of the index
//
// and the documents of its dialects. It also serves {base}/.well-known/resourcesync, the Source Description,
// and {base}/robots.txt.
//
// Every response has a strong ETag, which depends only on the state of the set and the base URL, so
// all hubs of a cluster return the same ETag for the same bytes. A 304 reads only the entries that
// verify the name of the document.
//
// Each Serve method responds to a request of any method, or returns an error before it has written
// anything. The caller must have checked that the client may follow the set.
type Server struct {
	log  changelog.Log
	base feed.Base
	opts Options

	bodies *cache[*body]      // bodies by ETag; nil for a body too large for the cache
	plans  *cache[*document]  // newest document of each URL, served while the log is unavailable
	bounds *cache[boundaries] // boundaries by set
	blocks *cache[block]      // blocks of Resource Lists
	gzip   sync.Pool          // *gzip.Writer
}

// Options of a Server. Zero values are the defaults.
type Options struct {
	// DescribedBy is the URL of a document about the hub, which the Source Description links to.
	// Default: none.
	DescribedBy string

	// CacheBytes is the size of the cache of documents; default 64 MiB.
	CacheBytes int64

	// Answers is the memory budget for encoding bodies, which other parts of the hub may share.
	// Default: 128 MiB for documents alone.
	Answers *limit.Budget

	// Streams is the memory budget for documents that are streamed at the speed of the client, which
	// other parts of the hub may share. Default: 256 MiB for documents alone.
	Streams *limit.Budget

	// ClockSkew is the maximum difference between the clocks of hubs and store; default one minute.
	// Last-Modified is sent only once no hub can add an entry in that second. A ?from= may be that far
	// in the future.
	ClockSkew time.Duration

	// Sets tells which sets a publish may create. The topic of such a set is served before the set
	// exists. Default: none.
	Sets Sets

	// Inventories provides the resources for Resource Lists. With it, a Capability List links to the
	// inventory of the set, unless the source disabled it. Default: no inventories.
	Inventories Inventories

	// Dialects are the formats of other standards in which the changes of a set are also served.
	// Default: none.
	Dialects []*dialect.Form

	Now    func() time.Time // default time.Now
	Logger *slog.Logger     // default: discard
}

// Sets tells which sets may exist. It is implemented by *hub.Hub.
type Sets interface {
	// Waits reports whether a publish may create the set.
	Waits(set string) bool
}

// Inventories provides the Resource Lists of sets.
type Inventories interface {
	// ResourceList returns the content of a Resource List of a set: the newest one for the zero cursor,
	// otherwise the one at exactly the cursor at. It returns feed.ErrGone if that list no longer
	// exists, and another *feed.Error with status 404 if the set has none.
	ResourceList(ctx context.Context, set string, at feed.Cursor) (*List, error)
}

// maxItems is the maximum number of entries of a document (core section 7).
const maxItems = 50_000

// maxPlans is the maximum number of URLs in plans.
const maxPlans = 1_000

// gzipLevel is the fastest level, because open lists are compressed again after each change. Measured,
// higher levels take 33 to 67 % more time and save only 4 % of the size.
const gzipLevel = 1

// New returns a Server of the documents of a log. All URLs in them start with base, whatever the Host
// header of a request.
func New(log changelog.Log, base feed.Base, o Options) *Server {
	o.CacheBytes = cmp.Or(o.CacheBytes, 64<<20)
	o.ClockSkew = cmp.Or(o.ClockSkew, time.Minute)
	if o.Answers == nil {
		o.Answers = limit.NewBudget(128<<20, limit.MemoryTimeout)
	}
	if o.Streams == nil {
		o.Streams = limit.NewBudget(256<<20, limit.MemoryTimeout)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	d := &Server{
		log: log, base: base, opts: o,
		bodies: newCache[*body](o.CacheBytes),
		plans:  newCache[*document](maxPlans),
		bounds: newCache[boundaries](o.CacheBytes / 16),
		blocks: newCache[block](o.CacheBytes / 16),
	}
	d.gzip.New = func() any {
		w, _ := gzip.NewWriterLevel(io.Discard, gzipLevel) // fails only for an invalid level
		return w
	}
	return d
}

// ServeDescription serves {base}/.well-known/resourcesync: the Source Description (core section 8) with
// every set that the caller may follow. If sets are created, described or deleted while it is written,
// it is restarted a few times, and then the response is a 503.
func (d *Server) ServeDescription(w http.ResponseWriter, r *http.Request) error {
	w.Header().Add("Vary", "Accept-Encoding, Authorization")
	if err := problem.RequireRead(r, "GET, HEAD"); err != nil {
		return err
	}
	part := 0
	if text := r.URL.Query().Get("part"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return resourcesync.Invalidf("part=%.20q: want a number from 1", text)
		}
		part = n
	}
	for range descriptionTries {
		states, err := d.log.Sets(r.Context())
		if err != nil {
			return err
		}
		doc, err := d.description(r.Context(), states, part)
		if err == nil {
			err = d.answer(w, r, doc)
		}
		if !errors.Is(err, errSetsChanged) {
			return err
		}
	}
	return problem.Retry(problem.New(http.StatusServiceUnavailable, "unavailable", "sets are created, described or deleted faster than they can be listed"))
}

// ServeSet serves {base}/sets/{set}/{name}, a document of a set. It returns a 404 if there is no such
// document, and feed.ErrGone if the memory no longer has it.
func (d *Server) ServeSet(w http.ResponseWriter, r *http.Request, set, name string) error {
	w.Header().Add("Vary", "Accept-Encoding")
	var plan planner
	permanent := true // the document exists as long as the set
	switch name {
	case ".well-known/resourcesync":
		plan = d.setDescription
	case "capabilitylist.xml":
		plan = d.capabilityList
	case "changelist.xml":
		plan = d.rolling
	case "changelist-index.xml":
		plan = d.index
	case "resourcelist.xml":
		plan = d.resourceList
	default:
		permanent = false
		plan = d.named(name)
		if position, ok := strings.CutPrefix(name, "changes/"); ok {
			w.Header().Add("Vary", "Accept")
			format := changeFormat(r)
			plan = func(ctx context.Context, s feed.State) (*document, error) { return d.change(ctx, s, position, format) }
			name += " " + format.Name // each format is a separate document
		}
		if plan == nil {
			plan = d.inDialect(name)
			permanent = slices.ContainsFunc(d.opts.Dialects, func(f *dialect.Form) bool { return f.Newest == name })
		}
		if plan == nil {
			return notFound("no such document; " + d.base.CapabilityList(set) + " lists the documents of the set")
		}
	}
	if err := problem.RequireRead(r, "GET, HEAD"); err != nil {
		return err
	}
	switch q := r.URL.Query(); {
	case q.Has("from") && name == "changelist.xml":
		return d.serveFrom(w, r, set, q["from"])
	case q.Has("from"):
		return resourcesync.Invalidf("%s has no parameter from", name)
	case q.Has("after"):
		return d.serveAfter(w, r, set, name, q["after"])
	}
	doc, err := d.plan(r.Context(), set, name, plan)
	if err == nil {
		err = d.answer(w, r, doc)
	}
	if permanent && errors.Is(err, feed.ErrGone) {
		return errMoved() // retention removed a part of it in the meantime
	}
	return err
}

// named returns the planner of a document that an index names, or nil if the name has no such form.
func (d *Server) named(name string) planner {
	if id, ok := parseListName(name); ok {
		return func(ctx context.Context, s feed.State) (*document, error) { return d.numbered(ctx, s, name, id) }
	}
	if at, block, piece, ok := parsePartName(name); ok {
		return func(ctx context.Context, s feed.State) (*document, error) {
			return d.resourcePart(ctx, s, name, at, block, piece)
		}
	}
	return nil
}

// ServeLatest serves GET and HEAD of a topic, {base}/sets/{set}/changes: the newest batch as a Change
// Notification, with Link self and hub (Change Notification section 4.1). The body is empty if there is
// no batch yet, if the set does not exist yet, and after retention removed part of the batch.
func (d *Server) ServeLatest(w http.ResponseWriter, r *http.Request, set string) error {
	w.Header().Add("Vary", "Accept, Accept-Encoding")
	if err := problem.RequireRead(r, "GET, HEAD, POST"); err != nil { // another handler serves POST, which publishes
		return err
	}
	doc, err := d.plan(r.Context(), set, "changes", d.latest)
	if errors.Is(err, feed.ErrNoSet) && d.opts.Sets != nil && d.opts.Sets.Waits(set) {
		doc, err = d.noLatest(feed.State{Set: set}), nil
	}
	if err != nil {
		return err
	}
	err = d.answer(w, r, doc)
	if errors.Is(err, feed.ErrGone) { // retention removed it in the meantime; the topic itself is never gone
		none := d.noLatest(feed.State{Set: set})
		none.more = doc.more
		err = d.answer(w, r, none)
	}
	return err
}

// latest returns the latest Change Notification.
func (d *Server) latest(_ context.Context, s feed.State) (*document, error) {
	if s.BeforeLatest == s.Head || s.BeforeLatest.Position < s.Floor.Position {
		return d.noLatest(s), nil
	}
	return &document{
		tag:       d.tag("latest", s.Set, s.Begin, s.BeforeLatest, s.Head),
		modified:  s.Head.Micros,
		link:      d.base.Link(s.Set),
		more:      d.inventoryLink(s),
		maxCached: d.cacheLimit(s.Head.Position - s.BeforeLatest.Position),
		write: func(ctx context.Context, w io.Writer) error {
			h := (&feed.Batch{Set: s.Set, After: s.BeforeLatest, Cursor: s.Head}).Header()
			return writeChanges(w, feed.LastmodSource, h, d.entries(ctx, s.Set, s.BeforeLatest, s.Head))
		},
	}, nil
}

// noLatest returns the empty document of a topic without a notification.
func (d *Server) noLatest(s feed.State) *document {
	return &document{tag: d.tag("no latest", s.Set, s.Begin), link: d.base.Link(s.Set), more: d.inventoryLink(s)}
}

// inventoryLink returns the value of the Link header for the inventory of a set, or "" if it has none.
func (d *Server) inventoryLink(s feed.State) string {
	if d.opts.Inventories == nil || s.NoInventory {
		return ""
	}
	return d.base.InventoryLink(s.Set)
}

// A planner returns the document for a state of its set.
type planner func(ctx context.Context, s feed.State) (*document, error)

// plan returns the document of a URL of a set. If the log is unavailable, it returns the last document
// of the URL, whose cached body is still correct, but not the newest.
func (d *Server) plan(ctx context.Context, set, name string, plan planner) (*document, error) {
	key := set + "/" + name
	doc, err := d.planNow(ctx, set, plan)
	switch {
	case err == nil:
		d.plans.Add(key, doc, 1)
	case errors.Is(err, feed.ErrUnavailable):
		if last, ok := d.plans.Get(key); ok {
			return last, nil
		}
	case ctx.Err() == nil:
		d.plans.Remove(key) // it is outdated
	}
	return doc, err
}

// planNow returns the document for the current state of a set.
func (d *Server) planNow(ctx context.Context, set string, plan planner) (*document, error) {
	s, err := d.log.State(ctx, set)
	if err != nil {
		return nil, fmt.Errorf("state of set %q: %w", set, err)
	}
	return plan(ctx, s)
}

// cursorAt returns the cursor of the entry at a position that the caller saw in the log.
func (d *Server) cursorAt(ctx context.Context, set string, position uint64) (feed.Cursor, error) {
	c, err := d.log.At(ctx, set, position)
	if errors.Is(err, resourcesync.ErrInvalid) {
		return c, errMoved() // the log lost its tail in the meantime, so the request is not at fault
	}
	if err != nil {
		return c, fmt.Errorf("set %q at position %d: %w", set, position, err)
	}
	return c, nil
}

// errMoved returns the error of a log that lost its tail or its start between two reads: a 503 with
// Retry-After.
func errMoved() error {
	return problem.Retry(problem.New(http.StatusServiceUnavailable, "unavailable", "the change memory lost changes while it was read"))
}

// notFound returns a problem with status 404.
func notFound(detail string) error {
	return problem.New(http.StatusNotFound, "not-found", detail)
}
