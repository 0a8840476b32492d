package oaipmh

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"iter"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/idn"
	"github.com/rshub/rshub/resourcesync"
)

const (
	minOverlap    = 5 * time.Minute
	maxOverlap    = 7 * 24 * time.Hour
	restarts      = 2       // of a window whose resumptionToken expires, before the window is halved
	minWindow     = 2       // in steps of the granularity; a smaller window is not halved
	maxNews       = 200_000 // maximum number of changes that News returns
	maxRecent     = 50_000  // maximum number of records that a State remembers
	nowShare      = 0.9     // if this share of the records has the time of the request as datestamp, datestamps are meaningless
	minNowRecords = 20      // minimum number of records to decide that
	nowSlack      = 2 * time.Minute
	freshTime     = 2 * time.Second // a record with a newer datestamp may change again within the same second
)

// A Harvest reads the resources and the changes of a repository. It is not safe for concurrent use.
type Harvest struct {
	Repository *Repository
	Prefix     string   // metadataPrefix; default: oai_dc
	Set        string   // setSpec; default: all records
	Loc        Template // template of the URLs of the resources

	// Note is called with oddities of a repository that lose nothing. Default: not called.
	Note func(string)

	// News calls Bad once with each record that it cannot use. Default: not called.
	Bad func(*BadRecord)
}

// A State records how far a repository was harvested. The caller stores it.
type State struct {
	Identity Identity `json:"identity"`

	// Low is a time of the repository's clock. Every change with an older datestamp is harvested,
	// except changes that the repository dates back by more than Overlap.
	Low     time.Time     `json:"low"`
	Overlap time.Duration `json:"overlap"`

	// Recent has the version of each record whose datestamp is within the overlap, from Since on,
	// by a hash of its identifier. With it, the next window does not repeat these records. Nil if
	// unknown.
	Recent map[string]string `json:"recent"`
	Since  time.Time         `json:"since"`

	// Volatile means that datestamps are the time of the request, so they are meaningless.
	Volatile bool `json:"volatile,omitempty"`
}

// ErrNeedsList means that windows cannot show what changed. The caller must list all resources.
var ErrNeedsList = errors.New("all resources must be listed")

func (h *Harvest) note(format string, args ...any) {
	if h.Note != nil {
		h.Note(fmt.Sprintf(format, args...))
	}
}

// noteDamage reports the first record of a list whose metadata is not well-formed.
func (h *Harvest) noteDamage(l *List, rec *Record) {
	if rec.Damaged && !l.damaged {
		l.damaged = true
		h.note("record %d (%.200q): left out text of the metadata that is not well-formed XML", l.Count, rec.Identifier)
	}
}

// selection returns what to list. With datestamps of days, only the metadata can show that a record
// changed twice in one day.
func (h *Harvest) selection(g Granularity) Selection {
	return Selection{Prefix: cmp.Or(h.Prefix, "oai_dc"), Set: h.Set, Records: h.Loc == Metadata || g == Days}
}

// Resources lists all resources of the repository, to compare them with the hub. After the last
// one, *st is the State for News; after an error it is unchanged.
//
// A *BadRecord without NoResource is a record that may have a resource at an unknown URL. An
// *UncertainList at the end stands for any number of such records. After either, a resource that the
// list does not name may still exist. Every other error means that the list is incomplete.
func (h *Harvest) Resources(ctx context.Context, st *State) iter.Seq2[*feed.Entry, error] {
	return func(yield func(*feed.Entry, error) bool) {
		next, err := h.resources(ctx, st, yield)
		switch {
		case err == errStopped:
		case err != nil:
			yield(nil, err)
		default:
			*st = next
		}
	}
}

func (h *Harvest) resources(ctx context.Context, st *State, yield func(*feed.Entry, error) bool) (State, error) {
	id, err := h.Repository.Identify(ctx)
	if err != nil {
		return State{}, err
	}
	s := h.selection(id.Granularity)
	s.Records, s.restart = h.Loc == Metadata, true // a full comparison needs no prints
	l := new(List)
	clock := clockCheck{}
	recent := map[string]string{}
	var number uint64
	var doubt error
	for rec, err := range h.Repository.List(ctx, l, id.Granularity, s) {
		if d, ok := errors.AsType[*UncertainList](err); ok {
			doubt = d
			break
		}
		var loc, rule string
		if err == nil {
			h.noteDamage(l, rec)
			loc, rule = h.Loc.locOf(h.Repository, s.Prefix, rec)
		}
		if rule != "" {
			// A template always makes the same URL from an identifier, so there never was a
			// resource.
			err = &BadRecord{rec.Identifier, l.Count, rule, h.Loc != Metadata || len(rec.URLs) == 0, rec.Datestamp}
		}
		_, bad := errors.AsType[*BadRecord](err)
		switch {
		case rule != "" && rec.Deleted: // a deleted record has no metadata that could name a URL
			continue
		case bad:
			if !yield(nil, err) {
				return State{}, errStopped
			}
			continue
		case hasCode(err, badResumptionToken):
			return State{}, fmt.Errorf("the list was restarted, and expired again: %w", err)
		case err != nil:
			return State{}, err
		}
		clock.add(rec, l.Started)
		if rec.Time.After(l.Started.Add(-minOverlap)) && !rec.Time.After(l.Started.Add(-freshTime)) && id.Granularity == Seconds && len(recent) <= maxRecent {
			key, version := versionOf(rec)
			recent[key] = version
		}
		if rec.Deleted {
			continue
		}
		number++
		e := &feed.Entry{Cursor: feed.Cursor{Position: number}, Change: resourcesync.Change{Loc: loc, Change: resourcesync.Updated}}
		e.Change.Links = id.collections(rec, s.Prefix)
		if !st.Volatile {
			e.Change.Lastmod = rec.Time
		}
		if !yield(e, nil) {
			return State{}, errStopped
		}
	}
	if l.RestartErr != nil {
		h.note("the list was restarted: %v", l.RestartErr)
	}
	if doubt != nil && !yield(nil, doubt) {
		return State{}, errStopped
	}
	next := State{Identity: *id, Low: l.Started, Overlap: max(st.Overlap, minOverlap, id.Granularity.Step()), Volatile: clock.isNow()}
	if len(recent) <= maxRecent && id.Granularity == Seconds {
		next.Recent, next.Since = recent, next.Low.Add(-minOverlap)
	}
	if next.Volatile && !st.Volatile {
		h.note("the datestamps of the repository are the time of the request: only new and deleted records are found")
	}
	if next.Low.IsZero() {
		next.Low = time.Now().UTC().Add(-time.Hour)
		h.note("the repository does not send its time: using the time of this machine minus one hour")
	}
	return next, nil
}

// A clockCheck determines whether datestamps are the time of the request.
type clockCheck struct{ all, now int }

func (c *clockCheck) add(rec *Record, begun time.Time) {
	c.all++
	if d := rec.Time.Sub(begun); len(rec.Datestamp) > len(dayLayout) && -nowSlack < d && d < nowSlack {
		c.now++
	}
}

func (c *clockCheck) isNow() bool {
	return c.all >= minNowRecords && float64(c.now) > nowShare*float64(c.all)
}

// News returns the changes since a State, oldest first, and the new State. The caller must publish
// the changes before it stores the new State. Changes in the overlap of two windows are returned
// once. New records are updated, too, because repositories do not distinguish them.
//
// The error is ErrNeedsList if the repository is no longer the same, or if too much changed. The
// caller must then call Resources. After another error, News can be called again with the same
// State.
func (h *Harvest) News(ctx context.Context, st *State) ([]resourcesync.Change, *State, error) {
	id, err := h.Repository.Identify(ctx)
	if err != nil {
		return nil, nil, err
	}
	switch was := st.Identity; {
	case st.Low.IsZero():
		return nil, nil, fmt.Errorf("the repository was never harvested: %w", ErrNeedsList)
	case id.Earliest < was.Earliest, was.Deleted != id.Deleted, was.Granularity != id.Granularity, was.BaseURL != id.BaseURL:
		return nil, nil, fmt.Errorf("the repository has changed (its earliest datestamp, granularity, base URL or handling of deletions): %w", ErrNeedsList)
	case st.Volatile:
		return nil, nil, fmt.Errorf("the datestamps of the repository are the time of the request: %w", ErrNeedsList)
	}
	w := &window{Harvest: h, id: id, was: st, newest: map[string]int{}, recent: map[string]string{}, reported: map[[sha256.Size]byte]int{}, overlap: max(st.Overlap, minOverlap, id.Granularity.Step())}
	from := st.Low.Add(-w.overlap)
	if err := w.listWindow(ctx, from, time.Time{}); err != nil {
		return nil, nil, err
	}
	return w.result(from)
}

// A window is the list of changes between two datestamps.
type window struct {
	*Harvest
	id      *Identity
	was     *State
	overlap time.Duration

	started   time.Time // start of the first list, by the repository's clock
	clock     clockCheck
	found     []datedChange
	newest    map[string]int    // index in found, by loc
	recent    map[string]string // see State.Recent
	spread    time.Duration     // how far the datestamps of new changes are before Low
	truncated bool              // whether a list may lack the records at its end

	undated bool // whether a record without a datestamp was reported

	reported, seen map[[sha256.Size]byte]int // numbers of records like a bad one that were reported, and that the current list has had
}

type datedChange struct {
	change resourcesync.Change
	key    string
}

// listWindow lists a window. If its list expires repeatedly, listWindow halves it: a shorter list
// may be complete before its token expires.
func (w *window) listWindow(ctx context.Context, from, until time.Time) error {
	var err error
	for range restarts {
		if err = w.list(ctx, from, until); !hasCode(err, badResumptionToken) {
			break
		}
	}
	if hasCode(err, badArgument) && w.id.Granularity == Seconds && !from.IsZero() {
		w.note("the repository refuses datestamps with seconds (%v): using days", err)
		w.id.Granularity = Days
		return w.listWindow(ctx, from, until)
	}
	end := until
	if end.IsZero() {
		end = w.started
	}
	if !hasCode(err, badResumptionToken) {
		return err
	}
	if end.Sub(from) < minWindow*w.id.Granularity.Step() {
		return fmt.Errorf("list from %s: %w", from.Format(time.RFC3339), err)
	}
	middle := from.Add(end.Sub(from) / 2).Truncate(w.id.Granularity.Step())
	w.note("the resumptionToken expired %d times (%v): halving the window at %s", restarts, err, middle.Format(time.RFC3339))
	if err := w.listWindow(ctx, from, middle); err != nil {
		return err
	}
	return w.listWindow(ctx, middle, until) // both ends belong to a window, so there is no gap
}

func (w *window) list(ctx context.Context, from, until time.Time) error {
	s := w.selection(w.id.Granularity)
	s.From, s.Until = from, until
	l := new(List)
	w.seen = map[[sha256.Size]byte]int{}
	defer func() {
		if w.started.IsZero() {
			w.started = l.Started
		}
	}()
	for rec, err := range w.Repository.List(ctx, l, w.id.Granularity, s) {
		bad, isBad := errors.AsType[*BadRecord](err)
		uncertain, isUncertain := errors.AsType[*UncertainList](err)
		switch {
		case isUncertain:
			w.note("%v", uncertain)
			w.truncated = w.truncated || uncertain.Truncated
		case isBad:
			w.reportBad(bad)
		case err != nil:
			return err
		default:
			if err := w.addRecord(rec, l, s.Prefix); err != nil {
				return err
			}
		}
	}
	return nil
}

// reportBad reports a record, unless an earlier list has had it. Records without an identifier may
// look the same, so they are counted.
func (w *window) reportBad(b *BadRecord) {
	if len(w.reported) < maxNews { // limits the memory
		key := b.key()
		if w.seen[key]++; w.seen[key] <= w.reported[key] {
			return
		}
		w.reported[key]++
	}
	if w.Bad != nil {
		w.Bad(b)
	}
}

func (w *window) addRecord(rec *Record, l *List, prefix string) error {
	w.clock.add(rec, l.Started)
	w.noteDamage(l, rec)
	key, version := versionOf(rec)
	if was, known := w.was.Recent[key]; known && was == version {
		w.recent[key] = version
		return nil
	}
	loc, rule := w.Loc.locOf(w.Repository, prefix, rec)
	if rule != "" {
		if rec.Deleted {
			rule += "; only a list of all resources shows that it was deleted"
		}
		w.reportBad(&BadRecord{Identifier: rec.Identifier, Number: l.Count, Rule: rule, NoResource: w.Loc == Metadata && len(rec.URLs) == 0 && !rec.Deleted, Datestamp: rec.Datestamp})
		return nil
	}
	if lag := w.was.Low.Sub(rec.Time) - w.id.Granularity.Step(); w.was.Recent != nil && !rec.Time.Before(w.was.Since) && lag > 0 {
		w.spread = max(w.spread, min(lag, maxOverlap))
	}
	switch {
	case version == "": // the next window cannot tell whether it has changed again
		if !w.undated {
			w.undated = true
			w.note("record %d (%.200q) has no datestamp: it is published each time it is listed", l.Count, rec.Identifier)
		}
	case !rec.Time.After(l.Started.Add(-freshTime)) || rec.Print != [8]byte{}:
		w.recent[key] = version
	}
	c := resourcesync.Change{Loc: loc, Change: resourcesync.Updated, Lastmod: rec.Time, Links: w.id.collections(rec, prefix)}
	if rec.Deleted {
		c.Change, c.Lastmod = resourcesync.Deleted, time.Time{}
	}
	if i, twice := w.newest[loc]; twice {
		if w.found[i].key <= rec.Datestamp { // a deletion has no lastmod
			w.found[i] = datedChange{c, rec.Datestamp}
		}
		return nil
	}
	if len(w.found) == maxNews {
		return fmt.Errorf("more than %d records changed: %w", maxNews, ErrNeedsList)
	}
	w.newest[loc] = len(w.found)
	w.found = append(w.found, datedChange{c, rec.Datestamp})
	return nil
}

// collections returns the links to the sets of a record (core section 14.7). OAI-PMH has no URIs
// for sets, so they lead to the list of the records of a set, at the base URL that the repository
// states: the URL of the requests may have a secret.
func (id *Identity) collections(rec *Record, prefix string) (links []resourcesync.Link) {
	if id.BaseURL == "" {
		return nil
	}
	base, err := idn.URL(id.BaseURL)
	if err != nil {
		return nil
	}
	for _, spec := range rec.Sets {
		q := url.Values{"verb": {"ListIdentifiers"}, "metadataPrefix": {prefix}, "set": {spec}}
		if href := base + "?" + q.Encode(); resourcesync.CheckURI("set", href) == nil {
			links = append(links, resourcesync.Link{Rel: "collection", Href: href})
		}
	}
	return links
}

// versionOf returns the key and the value of a record in State.Recent.
func versionOf(rec *Record) (key, version string) {
	sum := sha256.Sum256([]byte(rec.Identifier))
	version = rec.Datestamp
	if rec.Deleted {
		version += " deleted"
	} else if rec.Print != [8]byte{} {
		version += " " + base64.RawURLEncoding.EncodeToString(rec.Print[:])
	}
	return base64.RawURLEncoding.EncodeToString(sum[:12]), version
}

func (w *window) result(from time.Time) ([]resourcesync.Change, *State, error) {
	if w.clock.isNow() && len(w.found) > minNowRecords && w.was.Low.Before(w.started.Add(-2*nowSlack)) {
		w.note("nearly all datestamps are the time of the request")
		return nil, nil, fmt.Errorf("the datestamps of the repository seem to be the time of the request: %w", ErrNeedsList)
	}
	if !w.started.IsZero() && w.started.Before(w.was.Low.Add(-w.overlap)) {
		return nil, nil, fmt.Errorf("the clock of the repository went back: %w", ErrNeedsList)
	}
	slices.SortStableFunc(w.found, func(a, b datedChange) int { return strings.Compare(a.key, b.key) })
	changes := make([]resourcesync.Change, len(w.found))
	for i := range w.found {
		changes[i] = w.found[i].change
	}
	next := &State{Identity: *w.id, Low: w.started, Overlap: w.overlap, Recent: w.recent, Since: from}
	next.Identity.Granularity = w.was.Identity.Granularity
	if w.truncated || next.Low.Before(w.was.Low) { // records are missing, or the repository's clock went back or is unknown
		next.Low = w.was.Low
	}
	if twice := 2 * w.spread; twice > next.Overlap {
		next.Overlap = min(twice, maxOverlap)
		w.note("records had datestamps %v in the past: the next window starts %v earlier", w.spread, next.Overlap)
	}
	if len(next.Recent) > maxRecent {
		next.Recent = nil // the overlap is published once more, which does no harm
	}
	return changes, next, nil
}
