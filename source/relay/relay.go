// Package relay follows sources that can only be polled, and tells a hub what is new: those
// that have Change Lists, those that only list what they have (a Resource List, a
// sitemap), and repositories that speak OAI-PMH. A Relay looks at a source again and again,
// and keeps between two looks what it needs to see what changed. From time to time it
// compares all that the source has with all that the hub holds, because no way to poll
// shows everything.
package relay

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/outbound"
	"github.com/rshub/rshub/resourcesync"
	"github.com/rshub/rshub/source/harvest"
	"github.com/rshub/rshub/source/harvest/oaipmh"
	"github.com/rshub/rshub/source/reconcile"
)

// Bounds of one list. There are lists of half a million resources in one document, ten
// times what the standard allows, and to read them does no harm.
const (
	maxBytes   = 512 << 20
	maxEntries = 5_000_000
)

// DefaultFull is how often everything is compared by default.
const DefaultFull = 24 * time.Hour

// Options of a Relay. Zero values are the defaults.
type Options struct {
	Full      time.Duration   // how often everything is compared; default DefaultFull
	MaxDelete reconcile.Bound // of the resources that comparisons delete within a day; default: see reconcile.Bound
	Dir       string          // where temporary files are made; default os.TempDir

	// Find finds out where the source is, when it is not any more where it was. Default:
	// nobody finds out, and the look fails.
	Find func(ctx context.Context) (Source, error)

	Note func(text string) // is told what is odd at the source without that anything is lost by it; default: nobody is told
	Gap  func(gap error)   // is told of each part of the source that could not be read; default: nobody is told
	Now  func() time.Time  // default time.Now

	Total  resourcesync.Limits                                   // of all documents of a source together; default: none
	Room   func(bytes int64) error                               // see reconcile.Options
	Memory func(ctx context.Context) (release func(), err error) // see reconcile.Options

	Save func(st *State) error // keeps the state; called when it changed; its error ends the look; default: nobody keeps it
}

// A How says how a look found out what changed.
type How string

// The ways to look.
const (
	Unchanged How = "unchanged" // the source's servers say that nothing changed
	Changes   How = "changes"   // by what changed since the last look
	Compared  How = "compared"  // by a comparison of everything
)

// A Result says what a look found out, and published.
type Result struct {
	How How

	Created, Updated, Deleted int // changes that were published

	Listed   uint64      // resources that the source has; Compared only
	Unknown  int         // resources that cannot be compared, and stay as they are at the hub
	Gaps     int         // what could not be read of the source: it may have more than was published
	Kept     int         // resources of the hub that the source does not have any more, and that are not deleted yet because of the gaps, or because they were not missed twice
	Cursor   feed.Cursor // of the newest change that was published, now or before
	Complete bool        // the hub knows all resources of the set; Compared only
}

// Changes returns the number of changes.
func (r *Result) Changes() int { return r.Created + r.Updated + r.Deleted }

// add counts what was published before in the same look.
func (r *Result) add(before *Result) {
	r.Created, r.Updated, r.Deleted = r.Created+before.Created, r.Updated+before.Updated, r.Deleted+before.Deleted
	if r.Cursor.Position < before.Cursor.Position {
		r.Cursor = before.Cursor
	}
}

// A State is what a Relay keeps between two looks. It is small: some hundred kilobytes at
// most. It may hold URLs with secrets.
type State struct {
	Version int    `json:"version"` // 1
	Source  Source `json:"source"`

	Cursor string         `json:"cursor"`          // of the newest change that was published, or of the hub's log when everything was compared
	Full   time.Time      `json:"full"`            // when everything was compared last
	Short  bool           `json:"short,omitempty"` // nothing was compared then, or nothing was deleted, because the Change Lists did not reach back to the Resource List
	Toll   reconcile.Toll `json:"toll"`            // what was deleted within a day

	Seen     harvest.Seen     `json:"seen"`               // of the Change Lists, else of the list of resources
	Mark     Mark             `json:"mark"`               // of the Change Lists
	Trust    Trust            `json:"trust"`              // in the lastmod of a list of resources
	Harvest  oaipmh.State     `json:"harvest"`            // of a repository
	Held     uint64           `json:"held,omitempty"`     // of a repository: resources that it had when everything was compared
	Missing  map[string]int64 `json:"missing,omitempty"`  // of a repository: since when (in seconds since 1970) it does not list a resource that the hub has
	Nameless map[string]int64 `json:"nameless,omitempty"` // of a repository: since when it lists a record whose URL is not known, by a hash
}

// StateVersion is the Version of a State.
const StateVersion = 1

// A Relay looks at one source for one set of a hub. One goroutine at a time may use it.
type Relay struct {
	hub    reconcile.Hub
	lister *harvest.Lister
	st     *State
	opts   Options
}

// New returns a Relay of the source that the state names. It asks for documents with
// getter, and looks at nothing until Look. st belongs to the Relay from then on.
func New(hub reconcile.Hub, getter *harvest.Getter, st *State, o Options) *Relay {
	if o.Full <= 0 {
		o.Full = DefaultFull
	}
	if o.Note == nil {
		o.Note = func(string) {}
	}
	if o.Gap == nil {
		o.Gap = func(error) {}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Save == nil {
		o.Save = func(*State) error { return nil }
	}
	st.Version = StateVersion
	r := &Relay{hub: hub, st: st, opts: o}
	r.lister = &harvest.Lister{Getter: getter, Odd: r.odd, Limits: resourcesync.Limits{Bytes: maxBytes, Entries: maxEntries}, Total: o.Total, Now: o.Now}
	return r
}

// Look looks at the source once, and publishes what is new. It blocks until the hub has it.
//
// After an error the hub may have a part of it; the next Look finds the rest. Nothing is
// deleted because of a list that could not be read to its end. A *reconcile.TooMany means
// that MaxDelete does not allow what a comparison would delete, so nothing of it was
// published. What the source's Change Lists say was published all the same; the Result says
// how much.
func (r *Relay) Look(ctx context.Context) (Result, error) {
	full, lost, err := r.needsFull(ctx)
	if err != nil {
		return Result{}, err
	}
	res, err := r.look(ctx, full, lost)
	if isGone(err) && r.moved(ctx) {
		res, err = r.look(ctx, true, true)
	}
	if _, refused := errors.AsType[*reconcile.TooMany](err); err != nil && !refused {
		return res, err
	}
	return res, errors.Join(err, r.keep(&res))
}

// keep keeps the state, with the cursor of the newest change that was published.
func (r *Relay) keep(res *Result) error {
	r.keepCursor(res)
	if err := r.opts.Save(r.st); err != nil {
		return fmt.Errorf("keep the state: %w", err)
	}
	return nil
}

// keepCursor keeps the cursor of the newest change, or says it if nothing was published.
func (r *Relay) keepCursor(res *Result) {
	if res.Cursor.IsZero() {
		res.Cursor, _ = feed.ParseCursor(r.st.Cursor)
	} else {
		r.st.Cursor = res.Cursor.String()
	}
}

func (r *Relay) look(ctx context.Context, full, lost bool) (Result, error) {
	switch s := &r.st.Source; {
	case s.Repository != nil:
		return r.repository(ctx, full)
	case s.ChangeList != "":
		return r.changeList(ctx, full, lost)
	}
	return r.list(ctx, full)
}

// isGone reports whether an error means that a document is not there any more.
func isGone(err error) bool {
	f, ok := errors.AsType[*outbound.Failure](err)
	return ok && (f.Status == http.StatusNotFound || f.Status == http.StatusGone)
}

// moved reports whether the source is at another place by now. What is known of the old one
// is forgotten then.
func (r *Relay) moved(ctx context.Context) bool {
	if r.opts.Find == nil {
		return false
	}
	s, err := r.opts.Find(ctx)
	if err != nil || reflect.DeepEqual(s, r.st.Source) {
		return false // the error of the look says more
	}
	r.opts.Note("the source is not any more where it was, and was found at another place: everything is compared")
	*r.st = State{Version: StateVersion, Source: s, Cursor: r.st.Cursor}
	return true
}

// shortAgain is after what time everything is compared again when nobody could tell what was
// deleted: the source may have made its list anew.
const shortAgain = time.Hour

// needsFull reports whether everything has to be compared: it is time, or the hub lost what
// was published to it.
func (r *Relay) needsFull(ctx context.Context) (full, lost bool, err error) {
	every := r.opts.Full
	if r.st.Short {
		every = min(every, shortAgain)
	}
	// A clock that was set back must not keep the relay from comparing.
	since := r.opts.Now().Sub(r.st.Full)
	full = since >= every || since < 0
	at, err := feed.ParseCursor(r.st.Cursor)
	if err != nil || at.IsZero() {
		return full, false, nil
	}
	held, err := r.hub.Holds(ctx, at)
	if err == nil && !held || errors.Is(err, feed.ErrNoSet) {
		r.opts.Note("the hub does not have any more what was published to it: everything is compared")
		return true, true, nil
	}
	return full, false, err
}
