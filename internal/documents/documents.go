// Package documents serves the change memory as the documents of the ResourceSync standard: the
// Source Description, Capability Lists, Change Lists, Resource Lists and their indexes, and the
// latest change notification. A destination that pulls requires nothing else.
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

// A Server serves the change memory as the documents of the ResourceSync
// standard, over HTTP. It serves, of each set:
//
//	{base}/sets/{set}/changes                                    the latest change notification
//	{base}/sets/{set}/changes/{position}                         one change
//	{base}/sets/{set}/.well-known/resourcesync                   a Source Description with this set alone
//	{base}/sets/{set}/capabilitylist.xml                         the Capability List
//	{base}/sets/{set}/changelist.xml                             the newest changes, always one open Change List
//	{base}/sets/{set}/changelist.xml?from=DATETIME               exactly the changes since
//	{base}/sets/{set}/changelist-index.xml                       the Change List Index
//	{base}/sets/{set}/changelist-{begin}-{n}-from-{micros}.xml   the open Change List that it names
//	{base}/sets/{set}/changelist-{begin}-{n}-until-{micros}.xml  the closed Change Lists that it names
//	{base}/sets/{set}/resourcelist.xml                           what the set held at one time: the Resource List, or the index of several
//	{base}/sets/{set}/resourcelist-{cursor}-{n}-{completed}.xml  the Resource Lists that it names
//
// the documents of its dialects, {base}/.well-known/resourcesync, the Source Description, and {base}/robots.txt.
//
// Every answer has a strong ETag, which depends only on the set's state and the
// base URL. So all hubs of a cluster give the same ETag for the same bytes. A 304
// reads no entries but those that names verify themselves by.
//
// Each Serve method answers one request of any method, or returns an error without
// having answered anything. Whether the caller may follow the set has been checked
// before.
type Server struct {
	log  changelog.Log
	base feed.Base
	opts Options

	bodies *cache[*body]      // bodies by ETag; nil for a body that is too large to keep
	plans  *cache[*document]  // the newest document of each URL, for times when the log cannot be reached
	bounds *cache[boundaries] // boundaries by set
	blocks *cache[block]      // blocks of Resource Lists
	gzip   sync.Pool          // of *gzip.Writer
}

// Options of a Server. Zero values are the defaults.
type Options struct {
	// DescribedBy is the URL of a document about all that the hub serves, which the Source
	// Description names. Default: none.
	DescribedBy string

	// CacheBytes bounds the memory for documents that are kept; default 64 MiB.
	CacheBytes int64

	// Answers is the budget of memory for making bodies. Other parts of the hub may
	// share it. Default: 128 MiB for documents alone.
	Answers *limit.Budget

	// Streams is the budget of memory for documents that are sent while they are read,
	// as fast as their clients take them. Other parts of the hub may share it. Default:
	// 256 MiB for documents alone.
	Streams *limit.Budget

	// ClockSkew is how far the clocks of hubs and store may be apart; default one
	// minute. A Last-Modified is sent only when no hub can add an entry in that
	// second any more. A ?from= may lie that far in the future.
	ClockSkew time.Duration

	// Sets knows which sets a publish may make. The topic of such a set is served before
	// the set is made. Default: there are none.
	Sets Sets

	// Inventories have the resources for Resource Lists. With them, a Capability List links
	// to where the set's inventory is read, unless the set's source wants none. Default: the
	// hub keeps none.
	Inventories Inventories

	// Dialects are the forms in which the changes of a set are served besides Change Lists.
	// Default: none.
	Dialects []*dialect.Form

	Now    func() time.Time // default time.Now
	Logger *slog.Logger     // default: discard
}

// Sets know which sets there may be. They are a *hub.Hub.
type Sets interface {
	// Waits reports whether a publish may make a set.
	Waits(set string) bool
}

// Inventories know what sets hold.
type Inventories interface {
	// ResourceList returns what the Resource List of a set shows: with the zero cursor the
	// newest list, else the one at exactly the cursor at. It returns feed.ErrGone if there
	// is none at that cursor any more, and another *feed.Error with the status 404 if the
	// set has none.
	ResourceList(ctx context.Context, set string, at feed.Cursor) (*List, error)
}

// maxItems is the standard's limit for the entries of one document (core
// section 7).
const maxItems = 50_000

// keptPlans bounds for how many URLs the newest document is kept in plans.
const keptPlans = 1_000

// gzipLevel is the fastest level, because open lists are compressed again after
// each change. By measurement, the higher levels take a third to two thirds
// more time, and save only four hundredths of the size.
const gzipLevel = 1

// New returns a Server of the documents of a log. base begins every URL in
// them; the Host header of a request does not matter.
func New(log changelog.Log, base feed.Base, o Options) *Server {
	o.CacheBytes = cmp.Or(o.CacheBytes, 64<<20)
	o.ClockSkew = cmp.Or(o.ClockSkew, time.Minute)
	if o.Answers == nil {
		o.Answers = limit.NewBudget(128<<20, limit.Patience)
	}
	if o.Streams == nil {
		o.Streams = limit.NewBudget(256<<20, limit.Patience)
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
		plans:  newCache[*document](keptPlans),
		bounds: newCache[boundaries](o.CacheBytes / 16),
		blocks: newCache[block](o.CacheBytes / 16),
	}
	d.gzip.New = func() any {
		w, _ := gzip.NewWriterLevel(io.Discard, gzipLevel) // fails only for an unknown level
		return w
	}
	return d
}

// ServeDescription answers {base}/.well-known/resourcesync: the Source
// Description (core section 8) with every set that the caller may follow. When sets are
// made, described or deleted while it is written, it is begun again, a few times; then the
// answer is a 503.
func (d *Server) ServeDescription(w http.ResponseWriter, r *http.Request) error {
	w.Header().Add("Vary", "Accept-Encoding, Authorization")
	if err := problem.OnlyRead(r, "GET, HEAD"); err != nil {
		return err
	}
	part := 0
	if text := r.URL.Query().Get("part"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return resourcesync.Invalidf("part=%.20q: it is a number from 1 on", text)
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
		if !errors.Is(err, errOtherSets) {
			return err
		}
	}
	return problem.Retry(problem.New(http.StatusServiceUnavailable, "unavailable", "sets are made, described or deleted faster than they can be listed"))
}

// ServeSet answers {base}/sets/{set}/{name}, which is one of the documents of a
// set. It returns a 404 when there is no document of that name, and
// feed.ErrGone when the memory no longer has it.
func (d *Server) ServeSet(w http.ResponseWriter, r *http.Request, set, name string) error {
	w.Header().Add("Vary", "Accept-Encoding")
	var plan planner
	lasting := true // the document is there as long as the set is
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
		lasting = false
		plan = d.named(name)
		if position, ok := strings.CutPrefix(name, "changes/"); ok {
			w.Header().Add("Vary", "Accept")
			format := changeFormat(r)
			plan = func(ctx context.Context, s feed.State) (*document, error) { return d.change(ctx, s, position, format) }
			name += " " + format.Name // each form is a document of its own
		}
		if plan == nil {
			plan = d.inDialect(name)
			lasting = slices.ContainsFunc(d.opts.Dialects, func(f *dialect.Form) bool { return f.Newest == name })
		}
		if plan == nil {
			return notFound("there is no such document; " + d.base.CapabilityList(set) + " names what the set has")
		}
	}
	if err := problem.OnlyRead(r, "GET, HEAD"); err != nil {
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
	if lasting && errors.Is(err, feed.ErrGone) {
		return moved() // retention removed a part of it meanwhile
	}
	return err
}

// named returns what plans a document that an index names, or nil if no index has such
// names.
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

// ServeLatest answers GET and HEAD on a set's topic, {base}/sets/{set}/changes:
// the newest batch as a change notification, with a Link self and hub (Change
// Notification section 4.1). The body is empty while there is no batch, also in
// a set that waits to be made, and after retention removed a part of the batch.
func (d *Server) ServeLatest(w http.ResponseWriter, r *http.Request, set string) error {
	w.Header().Add("Vary", "Accept, Accept-Encoding")
	if err := problem.OnlyRead(r, "GET, HEAD, POST"); err != nil { // POST publishes; another handler answers it
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
	if errors.Is(err, feed.ErrGone) { // retention removed it meanwhile; the topic itself is never gone
		none := d.noLatest(feed.State{Set: set})
		none.more = doc.more
		err = d.answer(w, r, none)
	}
	return err
}

// latest returns the latest change notification.
func (d *Server) latest(_ context.Context, s feed.State) (*document, error) {
	if s.BeforeLatest == s.Head || s.BeforeLatest.Position < s.Floor.Position {
		return d.noLatest(s), nil
	}
	return &document{
		tag:      d.tag("latest", s.Set, s.Begin, s.BeforeLatest, s.Head),
		modified: s.Head.Micros,
		link:     d.base.Link(s.Set),
		more:     d.inventoryLink(s),
		keep:     d.keep(s.Head.Position - s.BeforeLatest.Position),
		write: func(ctx context.Context, w io.Writer) error {
			h := (&feed.Batch{Set: s.Set, After: s.BeforeLatest, Cursor: s.Head}).Header()
			return writeChanges(w, feed.LastmodSource, h, d.entries(ctx, s.Set, s.BeforeLatest, s.Head))
		},
	}, nil
}

// noLatest returns what stands at a topic without a notification: an empty
// body.
func (d *Server) noLatest(s feed.State) *document {
	return &document{tag: d.tag("no latest", s.Set, s.Begin), link: d.base.Link(s.Set), more: d.inventoryLink(s)}
}

// inventoryLink returns the value of a Link header that names what the inventory of a set
// offers; empty: there is none.
func (d *Server) inventoryLink(s feed.State) string {
	if d.opts.Inventories == nil || s.NoInventory {
		return ""
	}
	return d.base.InventoryLink(s.Set)
}

// A planner returns the document that belongs to a state of its set.
type planner func(ctx context.Context, s feed.State) (*document, error)

// plan returns the document of a set's URL. If the log cannot be reached, it
// returns the document that was answered last. A body of it in the cache is
// still correct, only not the newest.
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
		d.plans.Remove(key) // it is not true any more
	}
	return doc, err
}

// planNow returns the document for the present state of a set.
func (d *Server) planNow(ctx context.Context, set string, plan planner) (*document, error) {
	s, err := d.log.State(ctx, set)
	if err != nil {
		return nil, fmt.Errorf("state of set %q: %w", set, err)
	}
	return plan(ctx, s)
}

// at returns the cursor of the entry at a position that the log had a moment
// ago.
func (d *Server) at(ctx context.Context, set string, position uint64) (feed.Cursor, error) {
	c, err := d.log.At(ctx, set, position)
	if errors.Is(err, resourcesync.ErrInvalid) {
		return c, moved() // the log lost its tail meanwhile; the client made no mistake
	}
	if err != nil {
		return c, fmt.Errorf("set %q at position %d: %w", set, position, err)
	}
	return c, nil
}

// moved returns the error for a log that lost its tail, or its beginning, between two looks
// at it: 503, try again soon.
func moved() error {
	return problem.Retry(problem.New(http.StatusServiceUnavailable, "unavailable", "the change memory lost changes while it was read"))
}

// notFound returns a 404.
func notFound(detail string) error {
	return problem.New(http.StatusNotFound, "not-found", detail)
}
