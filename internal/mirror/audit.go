package mirror

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"strings"
	"time"

	"github.com/rshub/rshub/client"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/inventory/audit"
	"github.com/rshub/rshub/resourcesync"
)

// A Problem is a difference between a mirror and its source.
type Problem struct {
	Kind     ProblemKind `json:"problem"`
	In       Location    `json:"in"`
	Loc      string      `json:"loc,omitempty"`
	Path     string      `json:"path,omitempty"`
	Reason   string      `json:"reason,omitempty"`
	Repaired bool        `json:"repaired,omitempty"`
	Set      string      `json:"set,omitempty"` // set of a hub whose sets are all mirrored

	entry feed.Entry  // version that the file should have
	info  fs.FileInfo // for a foreign file; nil if it no longer exists
}

// A ProblemKind is the kind of a Problem.
type ProblemKind string

// The kinds of problems.
const (
	Missing ProblemKind = "missing" // only the source has the resource
	Stale   ProblemKind = "stale"   // the mirror has another version
	Damaged ProblemKind = "damaged" // the file is not as the mirror wrote it
	Extra   ProblemKind = "extra"   // only the mirror has the resource or file
	Unknown ProblemKind = "unknown" // both have the resource, but too little metadata to compare
)

// A Location is the place where a Problem was found.
type Location string

// The locations.
const (
	InRecords Location = "bookkeeping" // the bookkeeping differs from the source
	InFiles   Location = "file"        // the disk differs from the bookkeeping
	InSets    Location = "set"         // only the hub has the set, or only the directory has its mirror
)

// AuditOptions configures Audit. Zero values are the defaults.
type AuditOptions struct {
	Quick       bool // checks only the size and modification time of files, not their contents
	Repair      bool // fetches missing, stale and damaged files again, and removes extra ones
	RemoveExtra bool // lets Repair also remove files that the mirror did not create

	// Name is the name of the mirror. If the mirror is in sync and Audit was not Quick, Audit
	// submits a proof to the hub under this name. Default: no proof is submitted.
	Name string
}

// Audit verifies that a mirror has what its source has. It compares the bookkeeping with the hub
// at one cursor, or with the source's lists, then each file with the bookkeeping, and finds
// files that do not belong to the mirror. It yields every difference. If it ends without an
// error and every Problem is Repaired, the mirror is in sync.
//
// Audit ignores changes that the mirror has not followed yet. The mirror must have been run
// before. If d is nil, Audit compares only the bookkeeping. An error ends the sequence.
func (m *Mirror) Audit(ctx context.Context, d *Directory, o AuditOptions) iter.Seq2[Problem, error] {
	return func(yield func(Problem, error) bool) {
		inSync := true
		a := &auditRun{Mirror: m, dir: d, opts: o, yield: func(p Problem) error {
			inSync = inSync && p.Repaired
			if !yield(p, nil) {
				return errStopped
			}
			return nil
		}}
		switch err := a.run(ctx); {
		case err == nil && inSync:
			a.submitProof(ctx)
		case err != nil && err != errStopped:
			yield(Problem{}, err)
		}
	}
}

var errStopped = errors.New("the caller stopped the iteration")

// An auditRun is one call of Audit.
type auditRun struct {
	*Mirror
	dir   *Directory
	opts  AuditOptions
	yield func(Problem) error

	hub      *client.Client // nil if there is no hub with an inventory
	set      string         // set at the hub
	proof    *client.Proof  // proof that the bookkeeping matches the hub; nil if it does not
	expected replicaState   // state of the replica; nil without a hub
	toRepair []Problem      // problems of files to repair
	suspects []Problem      // problems of files to recheck
}

// A replicaState is the state of a replica at a cursor, see client.State.
type replicaState interface {
	Cursor() feed.Cursor
	Get(ctx context.Context, loc string) (e feed.Entry, ok bool, err error)
	All(ctx context.Context, prefix string) iter.Seq2[*feed.Entry, error]
}

const repairBatch = 200 // maximum number of files per repair

func (a *auditRun) run(ctx context.Context) (err error) {
	hub, set, ok := a.source.RSHub()
	if !ok {
		return a.auditLists(ctx)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer func() {
		if cause := context.Cause(ctx); errors.Is(err, context.Canceled) && cause != nil {
			err = cause
		}
	}()
	o, responded := a.hubOptions(cancel, true)
	c, err := client.New(hub, o)
	if err != nil {
		return &SourceError{err}
	}
	if _, _, err := a.checkComplete(ctx, c, set); errors.Is(err, feed.ErrNoInventory) {
		return a.auditLists(ctx)
	} else if err != nil {
		return err
	}
	responded()
	a.hub, a.set = c, set
	return a.auditHub(ctx, responded)
}

// auditHub audits a mirror that follows a hub. It calls responded when the hub has responded.
func (a *auditRun) auditHub(ctx context.Context, responded func()) (err error) {
	problems, err := a.compareHub(ctx)
	if err != nil {
		return err
	}
	responded()
	if a.opts.Repair && len(problems) > 0 { // keep the files, so that only differing ones are fetched
		if err := a.home.RemovePages(); err != nil {
			return err
		}
		if _, err := a.followReplica(ctx, a.hub, a.set, true, false, responded); err != nil {
			return err
		}
	}
	if err := a.yieldRecordProblems(problems); err != nil {
		return err
	}
	closed, err := a.openExpected(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closed()) }()
	return a.checkFiles(ctx)
}

// compareHub compares the bookkeeping with the hub at one cursor.
func (a *auditRun) compareHub(ctx context.Context) (problems []Problem, err error) {
	r, closed, err := a.openReplica(ctx, a.hub, a.set)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closed()) }()
	for d, err := range r.Audit(ctx, client.AuditOptions{OnProof: func(p client.Proof) { a.proof = &p }}) {
		if errors.Is(err, feed.ErrGone) || errors.Is(err, client.ErrBaselinePending) {
			err = fmt.Errorf("compare with the hub: mirror is too far behind; run rsmirror or audit -repair first: %w", err)
		}
		if err != nil {
			return nil, &SourceError{err}
		}
		problems = append(problems, Problem{Kind: ProblemKind(d.Kind), In: InRecords, Loc: d.Loc})
	}
	return problems, nil
}

// openExpected opens the state of the replica that the files are compared with. The caller must
// call the returned function when done.
func (a *auditRun) openExpected(ctx context.Context) (func() error, error) {
	r, closed, err := a.openReplica(ctx, a.hub, a.set)
	if err != nil {
		return nil, err
	}
	state, release, err := r.State(ctx)
	if err != nil {
		return nil, errors.Join(err, closed())
	}
	a.expected = state
	return func() error { release(); return closed() }, nil
}

// submitProof submits the proof to the hub. A failure is only logged: the mirror is in sync
// anyway.
func (a *auditRun) submitProof(ctx context.Context) {
	if a.opts.Name == "" || a.opts.Quick || a.proof == nil {
		return
	}
	if err := a.hub.SubmitProof(ctx, a.opts.Name, *a.proof); err != nil {
		a.Mirror.opts.Logf("submit proof to the hub: %v", err)
	}
}

// yieldRecordProblems yields problems of the bookkeeping, which Repair has already repaired.
func (a *auditRun) yieldRecordProblems(problems []Problem) error {
	for _, p := range problems {
		p.Repaired = a.opts.Repair
		if err := a.yield(p); err != nil {
			return err
		}
	}
	return nil
}

// auditLists audits a mirror of a source without a hub.
func (a *auditRun) auditLists(ctx context.Context) error {
	if a.hasListing() {
		problems, err := a.compareLists(ctx)
		if err != nil {
			return err
		}
		if a.opts.Repair && len(problems) > 0 {
			if err := a.saveListState(new(listState)); err != nil {
				return err
			}
			if err := a.Mirror.poll(ctx); err != nil {
				return err
			}
		}
		if err := a.yieldRecordProblems(problems); err != nil {
			return err
		}
	}
	return a.checkFiles(ctx)
}

// compareLists compares the listing in the ledger with what the source has now. It reads both in
// order of loc.
func (a *auditRun) compareLists(ctx context.Context) (problems []Problem, err error) {
	now, done, err := a.collectListing(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, done()) }()
	found := func(kind ProblemKind, loc string) {
		problems = append(problems, Problem{Kind: kind, In: InRecords, Loc: strings.Clone(loc)})
	}
	next, stop := iter.Pull2(a.home.Ledger.ListedResources(ctx))
	defer stop()
	l, err, more := next()
	for e, failed := range now.Walk(ctx, inventory.Range{}) {
		if failed != nil {
			return nil, failed
		}
		for ; more && err == nil && l.Entry.Change.Loc < e.Change.Loc; l, err, more = next() {
			found(Extra, l.Entry.Change.Loc)
		}
		if err != nil {
			return nil, err
		}
		if !more || l.Entry.Change.Loc != e.Change.Loc {
			found(Missing, e.Change.Loc)
			continue
		}
		if same, known := audit.SameContent(&l.Entry.Change, &e.Change); known && !same {
			found(Stale, e.Change.Loc)
		}
		l, err, more = next()
	}
	for ; more && err == nil; l, err, more = next() {
		found(Extra, l.Entry.Change.Loc)
	}
	return problems, err
}

// collectListing stores on disk what the source has now: its listing, and its changes since. The
// caller must call done.
func (a *auditRun) collectListing(ctx context.Context) (s *inventory.State, done func() error, err error) {
	at, all, err := a.currentListing(ctx)
	if err != nil {
		return nil, nil, err
	}
	pages, done, err := a.home.OpenListing()
	if err != nil {
		return nil, nil, err
	}
	n := uint64(0)
	s, err = inventory.CollectLast(ctx, pages, "listed", func(yield func(*feed.Entry, error) bool) {
		add := func(c resourcesync.Change) error {
			if !a.hasPrefix(c.Loc) {
				return nil
			}
			if !a.matches(&c) {
				c.Change = resourcesync.Deleted // not part of the mirror, or no longer
			}
			n++
			if !yield(&feed.Entry{Cursor: feed.Cursor{Position: n}, Change: c}, nil) {
				return errStopped
			}
			return nil
		}
		err := all(func(e *feed.Entry) error { return add(e.Change) })
		if err == nil {
			err = a.eachChangeSince(ctx, at, add)
		}
		if err != nil && err != errStopped {
			yield(nil, err)
		}
	})
	if err != nil {
		return nil, nil, errors.Join(err, done())
	}
	return s, done, nil
}

// eachChangeSince calls add with the changes since a time, from the Change Lists or, without
// them, the Change Dump. The last change of a resource is the newest.
func (a *auditRun) eachChangeSince(ctx context.Context, at time.Time, add func(resourcesync.Change) error) error {
	if !a.hasChanges() || at.IsZero() {
		return nil
	}
	if a.source.ChangeList == "" {
		return a.eachDumpChangeSince(ctx, at, add)
	}
	for c, err := range a.lister.Changes(ctx, a.source.ChangeList, at, nil, nil) {
		if err != nil {
			return &SourceError{err}
		}
		if err := add(*c); err != nil {
			return err
		}
	}
	return nil
}

// eachDumpChangeSince is eachChangeSince for the Change Dump, whose packages need not be in
// chronological order.
func (a *auditRun) eachDumpChangeSince(ctx context.Context, at time.Time, add func(resourcesync.Change) error) error {
	d, err := a.lister.ChangeDump(ctx, a.source.ChangeDump, at)
	if err != nil {
		return &SourceError{err}
	}
	newest := map[string]time.Time{}
	return a.eachListed(ctx, resourcesync.ChangeDumpManifest, d.Packages, func(e *feed.Entry) error {
		c := &e.Change
		if c.Datetime.Before(at) || c.Datetime.Before(newest[c.Loc]) {
			return nil
		}
		newest[c.Loc] = c.Datetime
		return add(*c)
	})
}
