package mirror

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory/audit"
	"github.com/rshub/rshub/internal/mirror/fetch"
	"github.com/rshub/rshub/internal/mirror/filename"
	"github.com/rshub/rshub/internal/mirror/home"
	"github.com/rshub/rshub/internal/mirror/ledger"
	"github.com/rshub/rshub/resourcesync"
)

// files compares all files with the bookkeeping, if the mirror has files.
func (a *auditing) files(ctx context.Context) error {
	if a.dir == nil {
		return nil
	}
	if a.expected != nil {
		for e, err := range a.expected.All(ctx, "") {
			if err == nil && a.wants(&e.Change) {
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
	if err := a.strangers(ctx); err != nil {
		return err
	}
	return a.lookAgain(ctx)
}

// file compares one file with the bookkeeping about its resource.
func (a *auditing) file(ctx context.Context, e feed.Entry) error {
	p, err := a.examine(&e)
	if err != nil || p == nil {
		return err
	}
	p.entry = e.Clone()
	p.In, p.Loc = InFiles, p.entry.Change.Loc
	if !a.opts.Repair {
		return a.found(ctx, *p)
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
	failure, failed, err := a.home.Ledger.Failure(e.Change.Loc)
	if err != nil {
		return nil, err
	}
	reason := ""
	if failed {
		reason = failure.Reason
	}
	if !ok {
		return &Problem{Kind: Missing, Reason: reason}, nil
	}
	if !failed && a.ahead(&f) {
		e = &f.Entry
	}
	p := &Problem{Path: f.Path, Reason: reason}
	info, err := a.home.Root.Lstat(f.Path)
	switch {
	case absent(err):
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

// ahead reports whether a file was made for a change that is newer than the bookkeeping.
// An interrupted update leaves such files: each file is recorded at once, the update only
// at its end. Such files are right.
func (a *auditing) ahead(f *ledger.File) bool {
	if a.expected == nil {
		return false
	}
	at := a.expected.Cursor() // a new log may have the same position with another datetime
	return f.Entry.Position > at.Position && f.Entry.Micros > at.Micros
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

// repair fetches the broken files again, and yields the problems with the
// results.
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

// unexpected finds files that the mirror made for resources that the source does not
// have.
func (a *auditing) unexpected(ctx context.Context) error {
	var gone []feed.Entry
	var found []Problem
	for f, err := range a.home.Ledger.Files(ctx) {
		if err != nil {
			return err
		}
		_, expected, err := a.entry(ctx, f.Loc)
		if err != nil {
			return err
		}
		if !expected && !a.ahead(&f) {
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
		if err := a.found(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// strangers finds files that the mirror did not make.
func (a *auditing) strangers(ctx context.Context) error {
	return fs.WalkDir(a.home.Root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist) && name != ".": // removed meanwhile
			return nil
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case d.IsDir() && (name == filename.State || name == home.LostFound):
			return fs.SkipDir
		case d.IsDir():
			return nil
		}
		if owned, err := a.owns(name); err != nil || owned {
			return err
		}
		p := Problem{Kind: Extra, In: InFiles, Path: name, Reason: "rsmirror did not make it"}
		if a.opts.Repair && a.opts.RemoveExtra {
			if err := a.dir.unlink(name); err != nil {
				return err
			}
			p.Repaired = true
		}
		return a.found(ctx, p)
	})
}

// owns reports whether the mirror has made the file at a path.
func (a *auditing) owns(name string) (bool, error) {
	loc, owned, err := a.home.Ledger.Owner(name)
	if err != nil || !owned {
		return false, err
	}
	f, ok, err := a.home.Ledger.File(loc)
	return ok && f.Path == name, err
}

// entry returns the bookkeeping's entry of a resource. ok is false if the source does not
// have it, or if it does not belong in the mirror.
func (a *auditing) entry(ctx context.Context, loc string) (e feed.Entry, ok bool, err error) {
	l, ok, err := a.home.Ledger.Seen(loc)
	if err != nil || ok || a.expected == nil {
		return l.Entry, ok, err
	}
	e, ok, err = a.expected.Get(ctx, loc)
	return e, ok && a.wants(&e.Change), err
}
