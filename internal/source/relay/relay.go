// Package relay follows sources that can only be polled, and publishes what is new to a hub:
// sources with Change Lists, sources that only list what they have (a Resource List, a sitemap),
// and repositories that speak OAI-PMH.
//
// A Relay polls a source again and again, and stores what it needs to detect changes at the next
// poll. From time to time it compares the whole source with the hub (package reconcile), because no
// way of polling shows every change. rspublish relay and package poll run it.
package relay

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/outbound"
	"github.com/rshub/rshub/internal/source/harvest"
	"github.com/rshub/rshub/internal/source/harvest/oaipmh"
	"github.com/rshub/rshub/internal/source/reconcile"
	"github.com/rshub/rshub/resourcesync"
)

// Bounds of one list. Some documents list half a million resources, ten times the
// standard's limit, and reading them does no harm.
const (
	maxBytes   = 512 << 20
	maxEntries = 5_000_000
)

// DefaultFull is how often everything is compared by default.
const DefaultFull = 24 * time.Hour

// Options of a Relay. Note, Gap and Save must be set. Other zero values are the defaults.
type Options struct {
	Full      time.Duration   // how often everything is compared; default DefaultFull
	MaxDelete reconcile.Bound // of the resources that comparisons delete within a day; default: see reconcile.Bound
	Dir       string          // where temporary files are made; default os.TempDir

	// Find finds the source, at the first look and after it has moved. Default: the State
	// names the source, and a look fails after the source has moved.
	Find func(ctx context.Context) (Source, error)

	Note func(text string)     // called with oddities of the source that lose nothing
	Gap  func(gap error)       // called for each part of the source that could not be read
	Save func(st *State) error // stores the state; called after each change of it; its error ends the look
	Now  func() time.Time      // default time.Now

	Total  resourcesync.Limits                                   // of all documents of a source together; default: none
	Room   func(bytes int64) error                               // see reconcile.Options
	Memory func(ctx context.Context) (release func(), err error) // see reconcile.Options
}

// A How says how a look found out what changed.
type How string

// The ways to look.
const (
	Unchanged How = "unchanged" // the source's servers say that nothing changed
	Changes   How = "changes"   // from the changes since the last look
	Compared  How = "compared"  // by a comparison of everything
)

// A Result says what a look found out, and published. Only a look that is Compared sets
// Listed, Held, Unknown and Complete. Kept also counts resources that were missing only
// once. The Cursor is that of the newest published change, of this look or an earlier one.
type Result struct {
	How How
	reconcile.Result
}

// add adds the changes that were published earlier in the same look.
func (r *Result) add(before *Result) {
	r.Created, r.Updated, r.Deleted = r.Created+before.Created, r.Updated+before.Updated, r.Deleted+before.Deleted
	if r.Cursor.Position < before.Cursor.Position {
		r.Cursor = before.Cursor
	}
}

// A State is what a Relay stores between two looks. It takes some hundred kilobytes at most,
// but a Mark may take two megabytes, and Missing ten, or more if URLs are long. It may hold
// URLs with secrets.
type State struct {
	Version int    `json:"version"` // 1
	Source  Source `json:"source"`

	Cursor string         `json:"cursor"`          // of the newest published change, or of the hub's log when everything was compared
	Full   time.Time      `json:"full"`            // when everything was last compared
	Short  bool           `json:"short,omitempty"` // nothing was compared or deleted then, because the Change Lists did not reach back to the Resource List
	Toll   reconcile.Toll `json:"toll"`            // the deletions of a day

	Seen     harvest.Seen     `json:"seen"`               // of the Change Lists, else of the list of resources
	Mark     Mark             `json:"mark"`               // of the Change Lists
	Trust    Trust            `json:"trust"`              // in the lastmod of a list of resources
	Harvest  oaipmh.State     `json:"harvest"`            // of a repository
	Held     uint64           `json:"held,omitempty"`     // for a repository: resources that it had when everything was compared
	Missing  map[string]int64 `json:"missing,omitempty"`  // for a repository: since when (in seconds since 1970) it no longer lists a resource of the hub
	Nameless map[string]int64 `json:"nameless,omitempty"` // for a repository: since when it lists a record without a known URL, by a hash
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

// New returns a Relay of the source that the state names, or that Find finds. It requests
// documents with getter, and does nothing until Look. From then on st belongs to the Relay.
func New(hub reconcile.Hub, getter *harvest.Getter, st *State, o Options) *Relay {
	if o.Full <= 0 {
		o.Full = DefaultFull
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	st.Version = StateVersion
	r := &Relay{hub: hub, st: st, opts: o}
	r.lister = &harvest.Lister{Getter: getter, Odd: r.odd, Limits: resourcesync.Limits{Bytes: maxBytes, Entries: maxEntries}, Total: o.Total, Now: o.Now}
	return r
}

// Look looks at the source once, and publishes the changes. It blocks until the hub has
// them.
//
// After an error the hub may have a part of the changes; the next Look finds the rest. A
// list that could not be read to its end causes no deletion. A *reconcile.TooMany means
// that a comparison would delete more than MaxDelete allows, so nothing of the comparison
// was published. The changes of the source's Change Lists, or of its repository since the last
// look, were still published; the Result counts them.
func (r *Relay) Look(ctx context.Context) (Result, error) {
	full, lost, err := r.needsFull(ctx)
	if err == nil && r.st.Source == (Source{}) {
		r.st.Source, err = r.opts.Find(ctx)
	}
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

// keep stores the state, with the cursor of the newest published change.
// If nothing was published, the Result gets the cursor of the state.
func (r *Relay) keep(res *Result) error {
	if res.Cursor.IsZero() {
		res.Cursor, _ = feed.ParseCursor(r.st.Cursor)
	} else {
		r.st.Cursor = res.Cursor.String()
	}
	if err := r.opts.Save(r.st); err != nil {
		return fmt.Errorf("keep the state: %w", err)
	}
	return nil
}

func (r *Relay) look(ctx context.Context, full, lost bool) (Result, error) {
	switch s := &r.st.Source; {
	case s.Repository != nil:
		return r.repository(ctx, full, lost)
	case s.ChangeList != "":
		return r.changeList(ctx, full, lost)
	}
	return r.list(ctx, full)
}

// isGone reports whether an error means that a document does not exist any
// more.
func isGone(err error) bool {
	f, ok := errors.AsType[*outbound.Failure](err)
	return ok && (f.Status == http.StatusNotFound || f.Status == http.StatusGone)
}

// moved reports whether the source has moved to another place. If so, it forgets the
// state of the old place, except the deletions of the day.
func (r *Relay) moved(ctx context.Context) bool {
	if r.opts.Find == nil {
		return false
	}
	s, err := r.opts.Find(ctx)
	if err != nil || reflect.DeepEqual(s, r.st.Source) {
		return false // the error of the look says more
	}
	r.opts.Note("the source is not any more where it was, and was found at another place: everything is compared")
	*r.st = State{Version: StateVersion, Source: s, Cursor: r.st.Cursor, Toll: r.st.Toll}
	return true
}

// shortAgain is the time until the next comparison if it was unknown what was deleted:
// the source may have made a new list by then.
const shortAgain = time.Hour

// needsFull reports whether everything has to be compared: it is due, or the hub has lost
// published changes.
func (r *Relay) needsFull(ctx context.Context) (full, lost bool, err error) {
	every := r.opts.Full
	if r.st.Short {
		every = min(every, shortAgain)
	}
	// A clock that was set back must not stop the comparisons.
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
