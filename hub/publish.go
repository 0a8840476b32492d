package hub

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/access"
	"github.com/rshub/rshub/internal/limit"
	"github.com/rshub/rshub/internal/problem"
	"github.com/rshub/rshub/internal/trail"
	"github.com/rshub/rshub/resourcesync"
)

// ServePublish answers a POST of changes to the topic of a set. The body is XML, JSON or
// NDJSON, or has one of Options.Formats, and may be gzipped. After the memory has accepted the
// changes, the response is 200 with a feed.Receipt, or 204 for one of Options.Formats. An
// error means that nothing was added, except for an NDJSON stream: there the problem reports
// what was accepted. The caller must have checked the right to publish to the set.
func (h *Hub) ServePublish(w http.ResponseWriter, r *http.Request, set string) error {
	receipt, err := h.receiveAuthorized(w, r, set)
	if err != nil {
		return err
	}
	if receipt == nil {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	w.Header().Set("Content-Type", "application/json")
	body, _ := json.Marshal(receipt) // strings and numbers only
	_, _ = w.Write(append(body, '\n'))
	return nil
}

// ServeHub answers a POST of changes to the hub's own URL. The Link headers name the topic
// (rel="self") and this hub (rel="hub"), as in Change Notification section 4.1. ServeHub
// checks that the caller may publish to the set.
func (h *Hub) ServeHub(w http.ResponseWriter, r *http.Request) error {
	set, err := h.linkedSet(r.Header)
	if err != nil {
		return err
	}
	trail.FromContext(r.Context()).SetAction(trail.Publish, set)
	if err := access.MayPublish(r.Context(), set); err != nil {
		return err
	}
	return h.ServePublish(w, r, set)
}

// linkedSet returns the set that the Link headers of a publish name.
func (h *Hub) linkedSet(header http.Header) (string, error) {
	var self, hub []string
	for _, l := range feed.ParseLinks(header.Values("Link")) {
		if l.HasRel("self") {
			self = append(self, l.URI)
		}
		if l.HasRel("hub") {
			hub = append(hub, l.URI)
		}
	}
	base := h.opts.Base
	if len(self) != 1 || len(hub) == 0 {
		return "", resourcesync.Invalidf(`a publish to the hub's own URL must name one topic and the hub: Link: <topic>; rel="self", <%s>; rel="hub"`, base.Hub())
	}
	if !slices.ContainsFunc(hub, func(u string) bool { return strings.TrimSuffix(u, "/") == base.Hub() }) {
		return "", resourcesync.Invalidf(`Link rel="hub" does not name this hub, which is <%s>`, base.Hub())
	}
	set, ok := base.ParseTopic(self[0])
	if !ok {
		return "", resourcesync.Invalidf(`Link rel="self" is not a topic of this hub; want <%s>`, base.Topic("SET"))
	}
	return set, nil
}

// receiveAuthorized calls receive, and aborts the request if the caller loses the right to
// publish to the set.
func (h *Hub) receiveAuthorized(w http.ResponseWriter, r *http.Request, set string) (*feed.Receipt, error) {
	if h.opts.Rights == nil {
		return h.receive(w, r, set)
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	conn := http.NewResponseController(w)
	release := h.opts.Rights.WhilePublishing(ctx, set, func(cause error) {
		cancel(problem.From(cause))
		_ = conn.SetReadDeadline(time.Now()) // aborts a blocked read; deadlineReader starts no further ones
	})
	receipt, err := h.receive(w, r.WithContext(ctx), set)
	release()
	if cause, ok := context.Cause(ctx).(*feed.Problem); ok && err != nil {
		p := *cause
		p.Accepted = problem.From(err).Accepted
		return nil, &p
	}
	return receipt, err
}

// receive reads, validates and appends the changes of a request. The receipt is nil if the
// format is one of Options.Formats.
func (h *Hub) receive(w http.ResponseWriter, r *http.Request, set string) (*feed.Receipt, error) {
	in, format, key, err := h.openIntake(w, r, set)
	if in != nil {
		defer in.release()
	}
	if err == nil && format == ndjsonFormat {
		return h.receiveLines(r.Context(), set, key, in)
	}
	var p changelog.Publish
	switch {
	case err != nil:
	case format.Read != nil:
		p, err = h.readFormat(r, in, set, format, key)
	default:
		p, err = h.readDocument(r.Context(), in, format, key)
	}
	if err != nil {
		h.metrics.countPublish(changelog.Appended{}, err, 0)
		return nil, err
	}
	if format.Read != nil && len(p.Changes) == 0 {
		return nil, nil
	}
	a, err := h.Publish(r.Context(), set, p)
	if err != nil || format.Read != nil {
		return nil, err
	}
	return feed.NewReceipt(set, a.Cursor, a.Count, a.Replayed), nil
}

// openIntake checks the headers of a publish and opens its body. If the intake is not nil, the
// caller must release it, even after an error.
func (h *Hub) openIntake(w http.ResponseWriter, r *http.Request, set string) (in *intake, format *Format, key string, err error) {
	if err := feed.CheckSet(set); err != nil {
		return nil, nil, "", err
	}
	if key, err = h.idempotencyKey(r); err != nil {
		return nil, nil, "", err
	}
	if format, err = h.format(r.Header); err != nil {
		return nil, nil, "", err
	}
	if in, err = h.newIntake(r.Context()); err != nil {
		return nil, nil, "", err
	}
	in.source = &deadlineReader{ReadCloser: r.Body, ctx: r.Context(), timeout: h.opts.ReadTimeout, conn: http.NewResponseController(w)}
	in.body, err = h.decompress(w, r, in.source, format == ndjsonFormat)
	return in, format, key, err
}

// readDocument reads a publish whose body is a single document.
func (h *Hub) readDocument(ctx context.Context, in *intake, format *Format, key string) (p changelog.Publish, err error) {
	sum := sha256.New()
	body := io.TeeReader(in, sum)
	limits := resourcesync.Limits{Bytes: h.opts.MaxBody, Entries: changelog.MaxBatch, CheckMemory: in.reserve, Check: (*resourcesync.Change).Validate}
	var doc *resourcesync.Document
	if format == xmlFormat {
		doc, err = resourcesync.ReadXML(body, limits)
	} else {
		doc, err = resourcesync.ReadJSON(body, limits)
	}
	if doc != nil {
		if err := checkDocument(doc); err != nil {
			return p, err // more useful than the errors of entries that it causes
		}
	}
	if err != nil {
		return p, problem.BodyError(err)
	}
	p.Changes = make([]resourcesync.Change, len(doc.Items))
	for i := range doc.Items {
		p.Changes[i] = doc.Items[i].Change
	}
	in.charge(len(p.Changes))
	p.Hash = [32]byte(sum.Sum(nil))
	switch {
	case key != "":
		p.Key, p.Unless = h.documentKey(ctx, key), h.linesKey(ctx, key, 1, "")
	case !doc.From.IsZero() && !doc.Until.IsZero():
		// A document with an interval is unique, so an identical document is a retry.
		p.Key = h.callerKey(ctx, "interval", string(p.Hash[:]))
	}
	return p, nil
}

// checkDocument returns an error unless a document is a valid list of changes.
func checkDocument(doc *resourcesync.Document) error {
	if !doc.ListsChanges() {
		reason := "its capability is " + strconv.Quote(doc.Capability)
		if doc.Index {
			reason = "it is a sitemapindex"
		}
		return resourcesync.Invalidf("the document cannot be published: %s; send a urlset whose rs:md capability is change-notification, framework-notification or changelist", reason)
	}
	if !doc.From.IsZero() && !doc.Until.IsZero() && doc.From.After(doc.Until) {
		return resourcesync.Invalidf("from is later than until")
	}
	return nil
}

// Publish appends a batch and wakes the followers of the set. When it returns nil, the memory
// holds the whole batch durably. The changes must be valid (resourcesync.Change.Validate), and
// the caller must not modify them after the call. Errors are the same as changelog.Log.Append's.
//
// If ctx is done before the append starts, Publish returns the error of ctx and nothing was
// written; after that, Publish waits for the memory to answer.
func (h *Hub) Publish(ctx context.Context, set string, p changelog.Publish) (changelog.Appended, error) {
	start := time.Now()
	a, err := h.publish(ctx, set, p)
	h.metrics.countPublish(a, err, time.Since(start))
	if err != nil {
		return changelog.Appended{}, fmt.Errorf("publish to set %q: %w", set, err)
	}
	if h.opts.Quota != nil {
		h.opts.Quota.RecordGrowth(set)
	}
	trail.FromContext(ctx).AddChanges(a.Count, a.Cursor, a.Replayed)
	return a, nil
}

func (h *Hub) publish(ctx context.Context, set string, p changelog.Publish) (changelog.Appended, error) {
	if err := checkPublish(set, &p); err != nil {
		return changelog.Appended{}, err
	}
	if p.Refused = h.refusal(set); p.Refused != nil && p.Key == "" {
		return changelog.Appended{}, p.Refused
	}
	size := p.Size()
	req := &request{publish: p, size: size}
	err := h.enqueue(ctx, set, req)
	if errors.Is(err, feed.ErrNoSet) && p.Refused != nil {
		return changelog.Appended{}, p.Refused
	}
	if errors.Is(err, feed.ErrNoSet) && !p.MustExist {
		if err := countNewSet(ctx); err != nil {
			return changelog.Appended{}, err
		}
		if err := h.makeSet(ctx, set, feed.Description{}); err != nil {
			return changelog.Appended{}, err
		}
		req = &request{publish: p, size: size}
		err = h.enqueue(ctx, set, req)
	}
	return req.result, err
}

// countNewSet counts a new set against the limits of the user in ctx. It returns an error if a
// limit is reached.
func countNewSet(ctx context.Context) error { return limit.FromContext(ctx).Use(limit.Sets, 1) }

// refusal returns the reason why nothing may be added to a set, or nil. All refusals that
// depend on the settings of the hub or on the contents of the memory must be here or in
// Log.Append, because a retry of a publish that the memory holds is answered anyway: see
// changelog.Publish.Refused.
func (h *Hub) refusal(set string) error {
	if !h.Waits(set) {
		return feed.ErrNoSet
	}
	if h.opts.Quota == nil {
		return nil
	}
	maxBytes, full := h.opts.Quota.Full(set)
	if !full {
		return nil
	}
	return problem.New(http.StatusInsufficientStorage, "set-full", fmt.Sprintf("set %s, or all sets of its creator together, reached the limit of %d bytes; the set accepts no changes until retention removes some", set, maxBytes))
}

// checkPublish returns the error with which the memory would refuse a publish. Without this
// check the memory would refuse the whole append, including the publishes of other callers
// gathered into it.
func checkPublish(set string, p *changelog.Publish) error {
	if err := feed.CheckSet(set); err != nil {
		return err
	}
	switch n := len(p.Changes); {
	case n == 0:
		return errNoChanges()
	case n > changelog.MaxBatch:
		return &resourcesync.Error{Err: resourcesync.ErrTooLarge, Entry: changelog.MaxBatch + 1,
			Msg: fmt.Sprintf("a batch has at most %d changes; send several batches", changelog.MaxBatch)}
	case len(p.Key) > changelog.MaxKey:
		return resourcesync.Invalidf("an idempotency key has at most %d bytes", changelog.MaxKey)
	}
	for i := range p.Changes {
		if err := checkCapability(set, &p.Changes[i]); err != nil {
			err.Entry = i + 1
			return err
		}
	}
	return nil
}

// checkCapability returns an error if a set of framework notifications is sent a valid change
// without a capability.
func checkCapability(set string, c *resourcesync.Change) *resourcesync.Error {
	if !feed.IsFrameworkSet(set) || c.FrameworkCapability() != "" {
		return nil
	}
	return &resourcesync.Error{Err: resourcesync.ErrInvalid, Loc: resourcesync.Shorten(c.Loc),
		Msg: fmt.Sprintf("capability is missing: set %q accepts only framework notifications, which are about documents", set)}
}

func errNoChanges() error {
	return resourcesync.Invalidf("the batch is empty; send at least one change")
}
