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

// A Problem is one thing by which a mirror and its source differ.
type Problem struct {
	Kind     ProblemKind `json:"problem"`
	In       Book        `json:"in"`
	Loc      string      `json:"loc,omitempty"`
	Path     string      `json:"path,omitempty"`
	Reason   string      `json:"reason,omitempty"`
	Repaired bool        `json:"repaired,omitempty"`

	entry feed.Entry  // the version that the file should have
	info  fs.FileInfo // info of a file that the mirror did not make
}

// A ProblemKind says what is wrong.
type ProblemKind string

// The kinds of problems.
const (
	Missing ProblemKind = "missing" // the source has the resource, the mirror does not
	Stale   ProblemKind = "stale"   // the mirror has another version than the source
	Damaged ProblemKind = "damaged" // the file differs from what the mirror wrote
	Extra   ProblemKind = "extra"   // the mirror has the resource or file, the source does not
	Unknown ProblemKind = "unknown" // both have the resource, but it is unknown whether they are equal
)

// A Book says where a problem was found.
type Book string

// The books.
const (
	InBooks Book = "bookkeeping" // the bookkeeping differs from the source
	InFiles Book = "file"        // the disk differs from the bookkeeping
)

// AuditOptions say how an Audit works. Zero values are the defaults.
type AuditOptions struct {
	Quick       bool // check only the size and modification time of files, not their contents
	Repair      bool // fetch missing, stale and damaged files again, and remove extra ones
	RemoveExtra bool // Repair also removes files that the mirror did not make

	// Name is that of the mirror. If the mirror is right, and Audit was not Quick, the hub is
	// told so under this name. The source learns nothing if it has no hub. Default: the hub
	// is not told.
	Name string
}

// Audit proves that a mirror in a directory has what its source has. It compares the
// bookkeeping with the hub at one cursor, or with the source's lists; then each file with
// the bookkeeping; and it looks for files that do not belong to the mirror. It yields
// every difference. If it ends without an error, and every yielded Problem is Repaired,
// the mirror is right.
//
// Audit does not report changes that the mirror has not followed yet. The mirror must
// have been run before. Without a Directory, Audit compares the bookkeeping only. An
// error ends the audit.
func (m *Mirror) Audit(ctx context.Context, d *Directory, o AuditOptions) iter.Seq2[Problem, error] {
	return func(yield func(Problem, error) bool) {
		right := true
		a := &auditing{Mirror: m, dir: d, opts: o, yield: func(p Problem) error {
			right = right && p.Repaired
			if !yield(p, nil) {
				return errEnough
			}
			return nil
		}}
		switch err := a.run(ctx); {
		case err == nil && right:
			a.tellHub(ctx)
		case err != nil && err != errEnough:
			yield(Problem{}, err)
		}
	}
}

var errEnough = errors.New("the caller wants no more")

// An auditing is one Audit.
type auditing struct {
	*Mirror
	dir   *Directory
	opts  AuditOptions
	yield func(Problem) error

	hub      *client.Client // nil: there is none that keeps an inventory
	set      string         // of the hub
	proof    *client.Proof  // that the bookkeeping is the hub's; nil: there is none
	expected held           // the replica's state; nil without a hub
	broken   []Problem      // files that have to be repaired
	suspects []Problem      // files that have to be checked again
}

// held is what a replica holds at a cursor, see client.State.
type held interface {
	Cursor() feed.Cursor
	Get(ctx context.Context, loc string) (e feed.Entry, ok bool, err error)
	All(ctx context.Context, prefix string) iter.Seq2[*feed.Entry, error]
}

const repairBatch = 200 // the most files of one repair

func (a *auditing) run(ctx context.Context) (err error) {
	hub, set, ok := a.source.RSHub()
	if !ok {
		return a.withLists(ctx)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer func() {
		if cause := context.Cause(ctx); errors.Is(err, context.Canceled) && cause != nil {
			err = cause
		}
	}()
	o, answers := a.patient(cancel, true)
	c, err := client.New(hub, o)
	if err != nil {
		return &SourceError{err}
	}
	if _, _, err := a.complete(ctx, c, set); errors.Is(err, feed.ErrNoInventory) {
		return a.withLists(ctx)
	} else if err != nil {
		return err
	}
	answers()
	a.hub, a.set = c, set
	return a.withHub(ctx, answers)
}

// withHub audits a mirror that follows a hub. It calls answers when the hub has answered.
func (a *auditing) withHub(ctx context.Context, answers func()) (err error) {
	wrong, err := a.compareHub(ctx)
	if err != nil {
		return err
	}
	answers()
	if a.opts.Repair && len(wrong) > 0 { // the files stay, so the mirror fetches only what differs
		if err := a.home.ForgetPages(); err != nil {
			return err
		}
		if _, err := a.replica(ctx, a.hub, a.set, true, false, answers); err != nil {
			return err
		}
	}
	if err := a.tell(wrong); err != nil {
		return err
	}
	closed, err := a.expect(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closed()) }()
	return a.files(ctx)
}

// compareHub compares the bookkeeping with the hub, at one cursor.
func (a *auditing) compareHub(ctx context.Context) (wrong []Problem, err error) {
	r, closed, err := a.open(ctx, a.hub, a.set)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closed()) }()
	for d, err := range r.Audit(ctx, client.AuditOptions{OnProof: func(p client.Proof) { a.proof = &p }}) {
		if errors.Is(err, feed.ErrGone) || errors.Is(err, client.ErrBaselinePending) {
			err = fmt.Errorf("the mirror is too far behind to be compared; first run rsmirror, or audit -repair: %w", err)
		}
		if err != nil {
			return nil, &SourceError{err}
		}
		wrong = append(wrong, Problem{Kind: ProblemKind(d.Kind), In: InBooks, Loc: d.Loc})
	}
	return wrong, nil
}

// expect opens the state of the replica, which the files are compared with. The caller calls
// the function when it has compared them.
func (a *auditing) expect(ctx context.Context) (func() error, error) {
	r, closed, err := a.open(ctx, a.hub, a.set)
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

// tellHub tells the hub that the mirror is right. That it cannot be told makes the mirror no
// less right.
func (a *auditing) tellHub(ctx context.Context) {
	if a.opts.Name == "" || a.opts.Quick || a.proof == nil {
		return
	}
	if err := a.hub.SubmitProof(ctx, a.opts.Name, *a.proof); err != nil {
		a.Mirror.opts.Note("the hub is not told that the mirror is right: %v", err)
	}
}

// tell yields problems of the bookkeeping. With Repair they are repaired already.
func (a *auditing) tell(wrong []Problem) error {
	for _, p := range wrong {
		p.Repaired = a.opts.Repair
		if err := a.yield(p); err != nil {
			return err
		}
	}
	return nil
}

// withLists audits a mirror of a source without a hub.
func (a *auditing) withLists(ctx context.Context) error {
	if a.listed() {
		wrong, err := a.compareLists(ctx)
		if err != nil {
			return err
		}
		if a.opts.Repair && len(wrong) > 0 {
			if err := a.keep(new(looks)); err != nil {
				return err
			}
			if err := a.Mirror.look(ctx); err != nil {
				return err
			}
		}
		if err := a.tell(wrong); err != nil {
			return err
		}
	}
	return a.files(ctx)
}

// compareLists compares the list in the ledger with what the source has now. Both are read in
// the order of loc.
func (a *auditing) compareLists(ctx context.Context) (wrong []Problem, err error) {
	now, done, err := a.present(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, done()) }()
	found := func(kind ProblemKind, loc string) {
		wrong = append(wrong, Problem{Kind: kind, In: InBooks, Loc: strings.Clone(loc)})
	}
	next, stop := iter.Pull2(a.home.Ledger.Listed(ctx))
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
	return wrong, err
}

// present collects what the source has now on the disk: what it lists, and what it has changed
// since. The caller must call done.
func (a *auditing) present(ctx context.Context) (s *inventory.State, done func() error, err error) {
	at, all, err := a.listing(ctx)
	if err != nil {
		return nil, nil, err
	}
	pages, done, err := a.home.OpenListed()
	if err != nil {
		return nil, nil, err
	}
	n := uint64(0)
	s, err = inventory.CollectLast(ctx, pages, "listed", func(yield func(*feed.Entry, error) bool) {
		add := func(c resourcesync.Change) error {
			if !a.names(c.Loc) {
				return nil
			}
			if !a.wants(&c) {
				c.Change = resourcesync.Deleted // it is not in the mirror, or has left it
			}
			n++
			if !yield(&feed.Entry{Cursor: feed.Cursor{Position: n}, Change: c}, nil) {
				return errEnough
			}
			return nil
		}
		err := all(func(e *feed.Entry) error { return add(e.Change) })
		if err == nil {
			err = a.changedSince(ctx, at, add)
		}
		if err != nil && err != errEnough {
			yield(nil, err)
		}
	})
	if err != nil {
		return nil, nil, errors.Join(err, done())
	}
	return s, done, nil
}

// changedSince calls add with the changes that the Change Lists, or else the Change Dump, name
// since a time. The last one of a resource is the newest.
func (a *auditing) changedSince(ctx context.Context, at time.Time, add func(resourcesync.Change) error) error {
	if !a.changing() || at.IsZero() {
		return nil
	}
	if a.source.ChangeList == "" {
		return a.changedInDump(ctx, at, add)
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

// changedInDump does the same for the Change Dump, whose packages need not be in the order of
// their changes.
func (a *auditing) changedInDump(ctx context.Context, at time.Time, add func(resourcesync.Change) error) error {
	d, err := a.lister.ChangeDump(ctx, a.source.ChangeDump, at)
	if err != nil {
		return &SourceError{err}
	}
	newest := map[string]time.Time{}
	return a.named(ctx, resourcesync.ChangeDumpManifest, d.Packages, func(e *feed.Entry) error {
		c := &e.Change
		if c.Datetime.Before(at) || c.Datetime.Before(newest[c.Loc]) {
			return nil
		}
		newest[c.Loc] = c.Datetime
		return add(*c)
	})
}
