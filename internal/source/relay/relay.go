// Package relay follows sources that can only be polled, and publishes their changes to a hub:
// sources with Change Lists, sources that only list their resources (a Resource List, a sitemap),
// and repositories that speak OAI-PMH.
//
// A Relay polls a source repeatedly and stores the state that it needs to detect changes at the
// next poll. From time to time it compares the whole source with the hub (package reconcile),
// because no kind of polling shows every change. rspublish relay and package poll use it.
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

// Limits of one list. Some documents list half a million resources, ten times the standard's limit,
// and reading them does no harm.
const (
	maxBytes   = 512 << 20
	maxEntries = 5_000_000
)

// DefaultCompareEvery is the default interval of full comparisons.
const DefaultCompareEvery = 24 * time.Hour

// Options configures a Relay. Note, Gap and Save must be set. Other zero values are the defaults.
type Options struct {
	CompareEvery time.Duration   // interval of full comparisons; default: DefaultCompareEvery
	MaxDelete    reconcile.Bound // limit of the deletions by comparisons within a day; default: see reconcile.Bound
	Dir          string          // directory of temporary files; default: os.TempDir

	// Find finds the source, at the first poll and after the source has moved. Default: the State
	// names the source, and polls fail after the source has moved.
	Find func(ctx context.Context) (Source, error)

	Note func(text string)     // called with oddities of the source that lose nothing
	Gap  func(gap error)       // called for each part of the source that could not be read
	Save func(st *State) error // stores the state after each change of it; its error ends the poll
	Now  func() time.Time      // default: time.Now

	Total         resourcesync.Limits                                   // limits of all documents of a source together; default: none
	ReserveDisk   func(bytes int64) error                               // see reconcile.Options
	ReserveMemory func(ctx context.Context) (release func(), err error) // see reconcile.Options
}

// A Method is how a poll detected changes.
type Method string

// The methods of a poll.
const (
	Unchanged Method = "unchanged" // the source's servers reported that nothing changed
	Changes   Method = "changes"   // the changes since the last poll were read
	Compared  Method = "compared"  // everything was compared
)

// A Result is the outcome of a poll. Only a Compared poll sets Listed, Held, Unknown and Complete.
// Kept also counts resources that were missing only once. Cursor is the cursor of the newest published
// change, of this poll or an earlier one.
type Result struct {
	Method Method
	reconcile.Result
}

// add adds the changes that were published earlier in the same poll.
func (r *Result) add(before *Result) {
	r.Created, r.Updated, r.Deleted = r.Created+before.Created, r.Updated+before.Updated, r.Deleted+before.Deleted
	if r.Cursor.Position < before.Cursor.Position {
		r.Cursor = before.Cursor
	}
}

// A State is what a Relay stores between two polls. It needs some hundred kilobytes at most, but a
// Mark may need two megabytes, and Missing ten, or more if URLs are long. It may contain URLs with
// secrets.
type State struct {
	Version int    `json:"version"` // StateVersion
	Source  Source `json:"source"`

	Cursor     string              `json:"cursor"`          // cursor of the newest published change, or of the hub's log when everything was compared
	ComparedAt time.Time           `json:"full"`            // time of the last full comparison
	Incomplete bool                `json:"short,omitempty"` // whether nothing was compared or deleted then, because the Change Lists did not reach back to the Resource List
	Deletions  reconcile.Deletions `json:"toll"`            // deletions of a day

	Seen     harvest.Seen     `json:"seen"`               // of the Change Lists, or else of the list of resources
	Mark     Mark             `json:"mark"`               // of the Change Lists
	Trust    Trust            `json:"trust"`              // whether to trust the lastmod in a list of resources
	Harvest  oaipmh.State     `json:"harvest"`            // of a repository
	Held     uint64           `json:"held,omitempty"`     // for a repository: number of its resources at the last full comparison
	Missing  map[string]int64 `json:"missing,omitempty"`  // for a repository: since when (in Unix seconds) it no longer lists a resource of the hub
	Nameless map[string]int64 `json:"nameless,omitempty"` // for a repository: since when it has listed a record without a known URL, by a hash
}

// StateVersion is the Version of a State.
const StateVersion = 1

// A Relay polls one source for one set of a hub. It is not safe for concurrent use.
type Relay struct {
	hub    reconcile.Hub
	lister *harvest.Lister
	st     *State
	opts   Options
}

// New returns a Relay of the source that st names, or that Find finds. It requests documents with
// getter, and does nothing until Poll is called. From then on the Relay owns st.
func New(hub reconcile.Hub, getter *harvest.Getter, st *State, o Options) *Relay {
	if o.CompareEvery <= 0 {
		o.CompareEvery = DefaultCompareEvery
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	st.Version = StateVersion
	r := &Relay{hub: hub, st: st, opts: o}
	r.lister = &harvest.Lister{Getter: getter, Note: r.noteMistake, Limits: resourcesync.Limits{Bytes: maxBytes, Entries: maxEntries}, Total: o.Total, Now: o.Now}
	return r
}

// Poll polls the source once and publishes the changes. It blocks until the hub has them.
//
// After an error, the hub may have only some of the changes; the next Poll finds the rest. A list
// that could not be read to its end causes no deletion. A *reconcile.TooManyDeletions means that a
// comparison would delete more than MaxDelete allows, so nothing of the comparison was published.
// New changes in the source's Change Lists or repository were still published; the Result counts
// them.
func (r *Relay) Poll(ctx context.Context) (Result, error) {
	full, lost, err := r.needsComparison(ctx)
	if err == nil && r.st.Source == (Source{}) {
		r.st.Source, err = r.opts.Find(ctx)
	}
	if err != nil {
		return Result{}, err
	}
	res, err := r.poll(ctx, full, lost)
	if isGone(err) && r.relocate(ctx) {
		res, err = r.poll(ctx, true, true)
	}
	if _, refused := errors.AsType[*reconcile.TooManyDeletions](err); err != nil && !refused {
		return res, err
	}
	return res, errors.Join(err, r.saveState(&res))
}

// saveState stores the state, with the cursor of the newest published change. If nothing was
// published, the Result gets the cursor of the state.
func (r *Relay) saveState(res *Result) error {
	if res.Cursor.IsZero() {
		res.Cursor, _ = feed.ParseCursor(r.st.Cursor)
	} else {
		r.st.Cursor = res.Cursor.String()
	}
	if err := r.opts.Save(r.st); err != nil {
		return fmt.Errorf("store the state: %w", err)
	}
	return nil
}

func (r *Relay) poll(ctx context.Context, full, lost bool) (Result, error) {
	switch s := &r.st.Source; {
	case s.Repository != nil:
		return r.pollRepository(ctx, full, lost)
	case s.ChangeList != "":
		return r.pollChangeLists(ctx, full, lost)
	}
	return r.pollList(ctx, full)
}

// isGone reports whether an error means that a document no longer exists.
func isGone(err error) bool {
	f, ok := errors.AsType[*outbound.Failure](err)
	return ok && (f.Status == http.StatusNotFound || f.Status == http.StatusGone)
}

// relocate reports whether the source has moved to another URL. If so, it discards the state of the
// old place, except the deletions of the day.
func (r *Relay) relocate(ctx context.Context) bool {
	if r.opts.Find == nil {
		return false
	}
	s, err := r.opts.Find(ctx)
	if err != nil || reflect.DeepEqual(s, r.st.Source) {
		return false // the error of the poll is more useful
	}
	r.opts.Note("the source has moved and was found at another URL: comparing everything")
	*r.st = State{Version: StateVersion, Source: s, Cursor: r.st.Cursor, Deletions: r.st.Deletions}
	return true
}

// incompleteRetry is the wait before the next comparison if it was unknown what was deleted. By
// then, the source may have a new list.
const incompleteRetry = time.Hour

// needsComparison reports whether a full comparison is needed: it is due, or the hub has lost
// published changes.
func (r *Relay) needsComparison(ctx context.Context) (full, lost bool, err error) {
	every := r.opts.CompareEvery
	if r.st.Incomplete {
		every = min(every, incompleteRetry)
	}
	// A clock that was set back must not stop the comparisons.
	since := r.opts.Now().Sub(r.st.ComparedAt)
	full = since >= every || since < 0
	at, err := feed.ParseCursor(r.st.Cursor)
	if err != nil || at.IsZero() {
		return full, false, nil
	}
	held, err := r.hub.HasCursor(ctx, at)
	if err == nil && !held || errors.Is(err, feed.ErrNoSet) {
		r.opts.Note("the hub has lost published changes: comparing everything")
		return true, true, nil
	}
	return full, false, err
}
