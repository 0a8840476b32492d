package mirror

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"strings"
	"time"

	"github.com/rshub/rshub/client"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/harvest"
	"github.com/rshub/rshub/inventory"
	"github.com/rshub/rshub/inventory/audit"
	"github.com/rshub/rshub/inventory/digest"
	"github.com/rshub/rshub/mirror/fetch"
	"github.com/rshub/rshub/mirror/filename"
	"github.com/rshub/rshub/mirror/ledger"
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

	entry feed.Entry // what the file ought to have
}

// AppendJSON appends the problem as one JSON object on one line.
func (p *Problem) AppendJSON(dst []byte) []byte {
	b, err := json.Marshal(p)
	if err != nil { // it has only texts
		panic(err)
	}
	return append(dst, b...)
}

// A ProblemKind says what is wrong.
type ProblemKind string

// The kinds of problems.
const (
	Missing ProblemKind = "missing" // the source has the resource, the mirror does not
	Stale   ProblemKind = "stale"   // the mirror has an older version
	Damaged ProblemKind = "damaged" // the file is not what the mirror made
	Extra   ProblemKind = "extra"   // the mirror has it, the source does not
	Unknown ProblemKind = "unknown" // both have it, and nobody knows whether it is the same
)

// A Book says where a problem was found.
type Book string

// The books.
const (
	InBooks Book = "bookkeeping" // what the mirror believes to have, compared with the source
	InFiles Book = "file"        // what is on the disk, compared with what the mirror believes to have
)

// AuditOptions say how an Audit works. Zero values are the defaults.
type AuditOptions struct {
	Quick       bool // look only at size and modification time of files, and not at their contents
	Repair      bool // get again what is missing, stale or damaged, and remove what is extra
	RemoveExtra bool // Repair also removes files that the mirror did not make
}

// Audit proves that a mirror in a directory has what its source has. It compares the
// bookkeeping with the hub at one cursor, or with the source's lists; then each file with
// the bookkeeping; and it looks for files that do not belong to the mirror. It yields every
// difference. If it ends without an error and has yielded nothing that is not Repaired,
// the mirror is right.
//
// Audit finds what is wrong, not what is late: changes that the mirror has not followed yet
// are no differences. The mirror must have been run before. Without a Directory, Audit
// compares the bookkeeping only. An error ends the audit.
func (m *Mirror) Audit(ctx context.Context, d *Directory, o AuditOptions) iter.Seq2[Problem, error] {
	return func(yield func(Problem, error) bool) {
		a := &auditing{Mirror: m, dir: d, opts: o, yield: func(p Problem) error {
			if !yield(p, nil) {
				return errEnough
			}
			return nil
		}}
		if err := a.run(ctx); err != nil && err != errEnough {
			yield(Problem{}, err)
		}
	}
}

var errEnough = errors.New("no more is wanted")

// An auditing is one Audit.
type auditing struct {
	*Mirror
	dir   *Directory
	opts  AuditOptions
	yield func(Problem) error

	expected *inventory.State // what the replica holds; nil without a hub
	broken   []Problem        // files that are to be repaired
}

const repairBatch = 200 // files that are repaired at once

func (a *auditing) run(ctx context.Context) error {
	hub, set, ok := a.source.RSHub()
	if !ok {
		return a.withLists(ctx)
	}
	c, err := client.New(hub, a.Mirror.opts.Hub)
	if err != nil {
		return &SourceError{err}
	}
	if _, err := a.complete(ctx, c, set); errors.Is(err, feed.ErrNoInventory) {
		return a.withLists(ctx)
	} else if err != nil {
		return err
	}
	return a.withHub(ctx, c, set)
}

// withHub audits a mirror that follows a hub.
func (a *auditing) withHub(ctx context.Context, c *client.Client, set string) (err error) {
	r, closed, err := a.home.replica(ctx, c, set, a.Mirror.opts.Prefix)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closed()) }()
	var wrong []Problem
	for d, err := range r.Audit(ctx, client.AuditOptions{By: digest.ByPosition}) {
		if err != nil {
			return &SourceError{err}
		}
		wrong = append(wrong, Problem{Kind: ProblemKind(d.Kind), In: InBooks, Loc: d.Loc})
	}
	if a.opts.Repair && len(wrong) > 0 {
		// The files stay, so only what differs is got.
		if err := closed(); err != nil {
			return err
		}
		closed = func() error { return nil }
		if err := a.home.ForgetPages(); err != nil {
			return err
		}
		if err := a.Mirror.replica(ctx, c, set, true, new(good)); err != nil {
			return err
		}
		if r, closed, err = a.home.replica(ctx, c, set, a.Mirror.opts.Prefix); err != nil {
			closed = func() error { return nil }
			return err
		}
	}
	if err := a.tell(wrong); err != nil {
		return err
	}
	state, release, err := r.State(ctx)
	if err != nil {
		return err
	}
	defer release()
	a.expected = state
	return a.files(ctx)
}

// tell yields problems of the bookkeeping, which were repaired if that is asked for.
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
			if err := a.anew(); err != nil {
				return err
			}
			if err := a.look(ctx); err != nil {
				return err
			}
		}
		if err := a.tell(wrong); err != nil {
			return err
		}
	}
	return a.files(ctx)
}

// anew forgets what was read of the source, so that all of it is read again. The number of
// the looks stays: it tells what another look has not seen.
func (a *auditing) anew() error {
	var st looks
	if _, err := a.home.Ledger.Meta("looks", &st); err != nil {
		return err
	}
	return a.keep(&looks{Number: st.Number})
}

// compareLists compares what the ledger has listed with what the source lists now.
func (a *auditing) compareLists(ctx context.Context) (wrong []Problem, err error) {
	at, all, err := a.listing(ctx)
	if err != nil {
		return nil, err
	}
	later, err := a.changedSince(ctx, at)
	if err != nil {
		return nil, err
	}
	named := map[string]bool{}
	compare := func(c *resourcesync.Change) error {
		named[c.Loc] = true
		l, known, err := a.home.Ledger.Seen(c.Loc)
		switch {
		case err != nil:
			return err
		case !known:
			wrong = append(wrong, Problem{Kind: Missing, In: InBooks, Loc: c.Loc})
		default:
			if same, known := audit.SameContent(&l.Entry.Change, c); known && !same {
				wrong = append(wrong, Problem{Kind: Stale, In: InBooks, Loc: c.Loc})
			}
		}
		return nil
	}
	err = all(func(e *feed.Entry) error {
		if _, changed := later[e.Change.Loc]; changed || named[e.Change.Loc] || !a.wants(e) {
			return nil
		}
		return compare(&e.Change)
	})
	if err != nil {
		return nil, err
	}
	for _, c := range later {
		if c.Change != resourcesync.Deleted {
			if err := compare(&c); err != nil {
				return nil, err
			}
		}
	}
	for l, err := range a.home.Ledger.Listed(ctx) {
		if err != nil {
			return nil, err
		}
		if loc := l.Entry.Change.Loc; !named[loc] {
			wrong = append(wrong, Problem{Kind: Extra, In: InBooks, Loc: loc})
		}
	}
	return wrong, nil
}

// changedSince returns the newest change of each resource that the Change Lists name since
// a time.
func (a *auditing) changedSince(ctx context.Context, at time.Time) (map[string]resourcesync.Change, error) {
	newest := map[string]resourcesync.Change{}
	if a.source.ChangeList == "" || at.IsZero() {
		return newest, nil
	}
	documents, _, err := a.changeLists(ctx, at, harvest.Version{})
	if err != nil {
		return nil, err
	}
	for _, doc := range documents {
		for i := range doc.Items {
			if c := doc.Items[i].Change; !c.Datetime.Before(at) && strings.HasPrefix(c.Loc, a.Mirror.opts.Prefix) {
				newest[c.Loc] = c
			}
		}
	}
	return newest, nil
}

// files compares all files with the bookkeeping.
func (a *auditing) files(ctx context.Context) error {
	if a.dir == nil {
		return nil
	}
	if a.expected != nil {
		for e, err := range a.expected.Walk(ctx, inventory.Range{}) {
			if err == nil {
				err = a.file(ctx, *e)
			}
			if err != nil {
				return err
			}
		}
	}
	for l, err := range a.home.Ledger.Listed(ctx) {
		if err == nil {
			err = a.file(ctx, l.Entry)
		}
		if err != nil {
			return err
		}
	}
	if err := a.repair(ctx); err != nil {
		return err
	}
	if err := a.unexpected(ctx); err != nil {
		return err
	}
	return a.strangers(ctx)
}

// file compares one file with what the bookkeeping says of its resource.
func (a *auditing) file(ctx context.Context, e feed.Entry) error {
	p, err := a.examine(&e)
	if err != nil || p == nil {
		return err
	}
	p.In, p.Loc, p.entry = InFiles, strings.Clone(e.Change.Loc), e
	if !a.opts.Repair {
		return a.yield(*p)
	}
	if a.broken = append(a.broken, *p); len(a.broken) < repairBatch {
		return nil
	}
	return a.repair(ctx)
}

// examine returns what is wrong with the file of an entry; nil: nothing.
func (a *auditing) examine(e *feed.Entry) (*Problem, error) {
	f, ok, err := a.home.Ledger.File(e.Change.Loc)
	if err != nil {
		return nil, err
	}
	reason := ""
	if failure, failed, err := a.home.Ledger.Failure(e.Change.Loc); err != nil {
		return nil, err
	} else if failed {
		reason = failure.Reason
	}
	if !ok {
		return &Problem{Kind: Missing, Reason: reason}, nil
	}
	p := &Problem{Path: f.Path, Reason: reason}
	info, err := a.home.Root.Lstat(f.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		p.Kind, p.Reason = Missing, "the file is not there"
		return p, nil
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		p.Kind, p.Reason = Damaged, "it is no regular file"
		return p, nil
	case info.Size() != f.Size:
		p.Kind, p.Reason = Damaged, fmt.Sprintf("it has %d bytes, and had %d", info.Size(), f.Size)
		return p, nil
	case a.opts.Quick && info.ModTime().UnixNano() != f.Mtime:
		p.Kind, p.Reason = Damaged, "it was modified"
		return p, nil
	case !current(&f, e):
		p.Kind = Stale
		return p, nil
	case a.opts.Quick:
		return nil, nil
	}
	if p.Reason, err = a.content(&f, e); err != nil || p.Reason == "" {
		return nil, err
	}
	p.Kind = Damaged
	return p, nil
}

// current reports whether a file was made for the version of an entry.
func current(f *ledger.File, e *feed.Entry) bool {
	if fits(f, e) {
		return true
	}
	same, known := audit.SameContent(&f.Entry.Change, &e.Change)
	return e.Cursor == f.Entry.Cursor && (same || !known)
}

// content returns what is wrong with the content of a file; empty: nothing.
func (a *auditing) content(f *ledger.File, e *feed.Entry) (string, error) {
	in, err := a.home.Root.Open(f.Path)
	if err != nil {
		return "", err
	}
	defer in.Close()
	sum := fetch.NewSum(e.Change.Hash)
	if _, err := io.Copy(sum, in); err != nil {
		return fmt.Sprintf("it cannot be read: %v", err), nil
	}
	if sum.SHA256() != f.SHA256 {
		return fmt.Sprintf("the content has sha-256:%s, and had sha-256:%s", sum.SHA256(), f.SHA256), nil
	}
	if err := sum.Check(e.Change.Length); err != nil {
		return err.Error(), nil
	}
	return "", nil
}

// repair gets the files that are broken, and yields what came of it.
func (a *auditing) repair(ctx context.Context) error {
	if len(a.broken) == 0 {
		return nil
	}
	entries := make([]feed.Entry, len(a.broken))
	for i := range a.broken {
		entries[i] = a.broken[i].entry
	}
	err := a.dir.work(ctx, entries, func(ctx context.Context, e feed.Entry) (outcome, error) { return a.dir.get(ctx, e, 0, true, nil) })
	if err != nil {
		return err
	}
	for _, p := range a.broken {
		still, err := a.examine(&p.entry)
		if err != nil {
			return err
		}
		if p.Repaired = still == nil; still != nil {
			p.Reason = still.Reason
		}
		if err := a.yield(p); err != nil {
			return err
		}
	}
	a.broken = nil
	return nil
}

// unexpected finds files that the mirror has made, of resources that the source does not
// have.
func (a *auditing) unexpected(ctx context.Context) error {
	var gone []feed.Entry
	var found []Problem
	for f, err := range a.home.Ledger.Files(ctx) {
		if err != nil {
			return err
		}
		_, expected, err := a.home.Ledger.Seen(f.Loc)
		if err == nil && !expected && a.expected != nil {
			_, expected, err = a.expected.Get(ctx, f.Loc)
		}
		if err != nil {
			return err
		}
		if !expected {
			found = append(found, Problem{Kind: Extra, In: InFiles, Loc: f.Loc, Path: f.Path, Repaired: a.opts.Repair})
			gone = append(gone, feed.Entry{Change: resourcesync.Change{Loc: f.Loc, Change: resourcesync.Deleted}})
		}
	}
	if a.opts.Repair {
		if err := a.dir.remove(ctx, gone); err != nil {
			return err
		}
	}
	for _, p := range found {
		if err := a.yield(p); err != nil {
			return err
		}
	}
	return nil
}

// strangers finds files that the mirror has not made.
func (a *auditing) strangers(ctx context.Context) error {
	return fs.WalkDir(a.home.Root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case d.IsDir() && name == filename.State:
			return fs.SkipDir
		case d.IsDir():
			return nil
		}
		if loc, owned, err := a.home.Ledger.Owner(name); err != nil {
			return err
		} else if owned {
			if f, ok, err := a.home.Ledger.File(loc); err != nil || ok && f.Path == name {
				return err
			}
		}
		p := Problem{Kind: Extra, In: InFiles, Path: name, Reason: "rsmirror has not made it"}
		if a.opts.Repair && a.opts.RemoveExtra {
			if err := a.dir.unlink(name); err != nil {
				return err
			}
			p.Repaired = true
		}
		return a.yield(p)
	})
}
