package changelog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/gzip"

	"github.com/rshub/rshub/resourcesync"
)

// Documents serves the change memory as the documents of the ResourceSync
// standard, over HTTP. It serves, of each set:
//
//	{base}/sets/{set}/changes                        the latest change notification
//	{base}/sets/{set}/.well-known/resourcesync       a Source Description with this set alone
//	{base}/sets/{set}/capabilitylist.xml             the Capability List
//	{base}/sets/{set}/changelist.xml                 the newest changes, always one open Change List
//	{base}/sets/{set}/changelist.xml?from=DATETIME   exactly the changes since
//	{base}/sets/{set}/changelist-index.xml           the Change List Index
//	{base}/sets/{set}/changelist-{begin}-{n}.xml     the Change Lists that it names
//
// and {base}/.well-known/resourcesync, the Source Description.
//
// Every answer has a strong ETag that follows from the set's state and the base
// URL alone, so that all hubs of a cluster give the same ETag with the same
// bytes. A request that is answered with 304 reads no entries.
//
// Its Serve methods answer one request each, whatever its method. Whether the
// caller may follow the set has been checked before.
type Documents struct {
	log  Log
	base string
	opts DocumentsOptions

	bodies *cache[[]byte]     // what is sent, by ETag; nil where a body is too large to keep
	plans  *cache[*document]  // the last document of each URL, for when the log cannot be reached
	bounds *cache[boundaries] // by set
	gzip   sync.Pool          // of *gzip.Writer
}

// DocumentsOptions are the options of Documents; the zero value has the defaults.
type DocumentsOptions struct {
	// CacheBytes bounds the documents that are kept ready; default 64 MiB.
	CacheBytes int64

	// ClockSkew is how far the clocks of hubs and store may be apart; default one
	// minute. A Last-Modified is given once no entry can come for that second any
	// more, and a ?from= may lie that far in the future.
	ClockSkew time.Duration

	// MayFollow says whether the Source Description shows a set to the caller,
	// whom it finds in ctx; default: every set to everybody.
	MayFollow func(ctx context.Context, set string) bool

	// Waits says of a set that is not made that a publish may make it, so that
	// its topic is there already; default: none.
	Waits func(set string) bool

	// NoPush says that a set's Capability List does not name its push channel:
	// rs-aggregator refuses a whole set that has a capability it does not know.
	// Default: every set's list names it.
	NoPush func(set string) bool

	Now    func() time.Time // default time.Now
	Logger *slog.Logger     // default: discard
}

// maxItems is the standard's limit for the entries of one document (section 7).
const maxItems = 50_000

// keptPlans bounds how many documents can still be answered from the cache when
// the log cannot be reached.
const keptPlans = 1_000

// NewDocuments returns the documents of log. base is the hub's URL without a
// slash at its end; it begins every URL in the documents, whatever Host a
// request came with.
func NewDocuments(log Log, base string, o DocumentsOptions) *Documents {
	o.CacheBytes = cmp.Or(o.CacheBytes, 64<<20)
	o.ClockSkew = cmp.Or(o.ClockSkew, time.Minute)
	if o.MayFollow == nil {
		o.MayFollow = func(context.Context, string) bool { return true }
	}
	if o.Waits == nil {
		o.Waits = func(string) bool { return false }
	}
	if o.NoPush == nil {
		o.NoPush = func(string) bool { return false }
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	d := &Documents{
		log: log, base: strings.TrimSuffix(base, "/"), opts: o,
		bodies: newCache[[]byte](o.CacheBytes),
		plans:  newCache[*document](keptPlans),
		bounds: newCache[boundaries](o.CacheBytes / 16),
	}
	d.gzip.New = func() any {
		w, _ := gzip.NewWriterLevel(io.Discard, gzipLevel) // fails only for an unknown level
		return w
	}
	return d
}

// Hub returns the URL of the hub: where WebSub subscriptions and publications
// of all sets go.
func (d *Documents) Hub() string { return d.base + "/hub" }

// Topic returns the URL of a set's change notification channel.
func (d *Documents) Topic(set string) string { return d.url(set, "changes") }

// WebSocket returns the topic with the scheme ws or wss. It never stands in a
// loc: clients that walk a Capability List fail on it.
func (d *Documents) WebSocket(set string) string {
	return "ws" + strings.TrimPrefix(d.Topic(set), "http")
}

// Description returns the URL of the Source Description with every set.
func (d *Documents) Description() string { return d.base + "/.well-known/resourcesync" }

// CapabilityList returns the URL of a set's Capability List.
func (d *Documents) CapabilityList(set string) string { return d.url(set, "capabilitylist.xml") }

// ChangeListIndex returns the URL of a set's Change List Index.
func (d *Documents) ChangeListIndex(set string) string { return d.url(set, "changelist-index.xml") }

// ChangeList returns the URL of a set's rolling Change List.
func (d *Documents) ChangeList(set string) string { return d.url(set, "changelist.xml") }

// Link returns the value of the Link header on a set's topic and on each of its
// deliveries (Change Notification sections 4.1 and 4.3): self and hub in one field.
func (d *Documents) Link(set string) string {
	return "<" + d.Topic(set) + `>; rel="self", <` + d.Hub() + `>; rel="hub"`
}

func (d *Documents) url(set, name string) string { return d.base + "/sets/" + set + "/" + name }

// ServeDescription answers {base}/.well-known/resourcesync: the Source
// Description (core section 8) with every set that the caller may see.
func (d *Documents) ServeDescription(w http.ResponseWriter, r *http.Request) {
	w.Header().Add("Vary", "Accept-Encoding, Authorization")
	if !allow(w, r, "GET, HEAD") {
		return
	}
	states, err := d.log.Sets(r.Context())
	if err == nil {
		err = d.answer(w, r, d.description(r.Context(), states))
	}
	d.fail(w, r, err)
}

// ServeSet answers {base}/sets/{set}/{name}: one of the documents of a set, 404
// when there is none of that name, 410 when it is no longer kept.
func (d *Documents) ServeSet(w http.ResponseWriter, r *http.Request, set, name string) {
	w.Header().Add("Vary", "Accept-Encoding")
	var plan planner
	switch name {
	case ".well-known/resourcesync":
		plan = d.setDescription
	case "capabilitylist.xml":
		plan = d.capabilityList
	case "changelist.xml":
		plan = d.rolling
	case "changelist-index.xml":
		plan = d.index
	default:
		begin, n, ok := parseListName(name)
		if !ok {
			d.fail(w, r, notFound("there is no such document; "+d.CapabilityList(set)+" names what the set has"))
			return
		}
		plan = func(ctx context.Context, s State) (*document, error) { return d.numbered(ctx, s, begin, n) }
	}
	if !allow(w, r, "GET, HEAD") {
		return
	}
	if q := r.URL.Query(); name == "changelist.xml" && q.Has("from") {
		d.fail(w, r, d.serveFrom(w, r, set, q["from"]))
		return
	}
	doc, err := d.plan(r.Context(), set, name, plan)
	if err == nil {
		err = d.answer(w, r, doc)
	}
	d.fail(w, r, err)
}

// ServeLatest answers GET and HEAD on a set's topic, {base}/sets/{set}/changes:
// the newest batch as a change notification, with Link self and hub (Change
// Notification section 4.1). While there is none, also in a set that waits to be
// made, and after retention removed a part of it, the body is empty.
func (d *Documents) ServeLatest(w http.ResponseWriter, r *http.Request, set string) {
	w.Header().Add("Vary", "Accept, Accept-Encoding")
	if !allow(w, r, "GET, HEAD, POST") { // POST publishes; it is not for here
		return
	}
	doc, err := d.plan(r.Context(), set, "changes", d.latest)
	if errors.Is(err, ErrNoSet) && d.opts.Waits(set) {
		doc, err = d.noLatest(set, 0), nil
	}
	if err == nil {
		err = d.answer(w, r, doc)
		if errors.Is(err, ErrGone) { // removed since; a topic itself is never gone
			err = d.answer(w, r, d.noLatest(set, 0))
		}
	}
	d.fail(w, r, err)
}

func (d *Documents) latest(_ context.Context, s State) (*document, error) {
	if s.Latest == s.Head || s.Latest.Position < s.Floor.Position {
		return d.noLatest(s.Set, s.Begin), nil
	}
	return &document{
		tag:      d.tag("latest", s.Set, s.Begin, s.Latest, s.Head),
		modified: s.Head.Micros,
		link:     d.Link(s.Set),
		keep:     d.opts.CacheBytes / 2,
		write: func(ctx context.Context, w io.Writer) error {
			h := (&Batch{Set: s.Set, After: s.Latest, Cursor: s.Head}).header()
			return d.writeEntries(ctx, w, s.Set, h, s.Latest, s.Head)
		},
	}, nil
}

func (d *Documents) noLatest(set string, begin int64) *document {
	return &document{tag: d.tag("no latest", set, begin), link: d.Link(set)}
}

// A planner says what a document is in a state of its set.
type planner func(ctx context.Context, s State) (*document, error)

// plan returns the document of a set's URL. When the log cannot be reached it
// is the one that was answered last: a cached body of it is still right, only
// not the newest.
func (d *Documents) plan(ctx context.Context, set, name string, plan planner) (*document, error) {
	key := set + "/" + name
	doc, err := d.planNow(ctx, set, plan)
	if err == nil {
		d.plans.add(key, doc, 1)
	} else if errors.Is(err, ErrUnavailable) {
		if last, ok := d.plans.get(key); ok {
			return last, nil
		}
	}
	return doc, err
}

func (d *Documents) planNow(ctx context.Context, set string, plan planner) (*document, error) {
	s, err := d.log.State(ctx, set)
	if err != nil {
		return nil, fmt.Errorf("state of set %q: %w", set, err)
	}
	return plan(ctx, s)
}

// at is Log.At for a position that the log had a moment ago.
func (d *Documents) at(ctx context.Context, set string, position uint64) (Cursor, error) {
	c, err := d.log.At(ctx, set, position)
	if errors.Is(err, resourcesync.ErrInvalid) {
		return c, moved() // the log lost its tail since: no mistake of the client's
	}
	if err != nil {
		return c, fmt.Errorf("set %q at position %d: %w", set, position, err)
	}
	return c, nil
}

// moved is the answer when the log lost its tail between two looks at it.
func moved() error {
	return retry(NewStatus(http.StatusServiceUnavailable, "unavailable", "the change memory was replaced while it was read"))
}

func notFound(detail string) error {
	return NewStatus(http.StatusNotFound, "not-found", detail)
}
