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

// checkFiles compares all files with the bookkeeping. Without a Directory it does nothing.
func (a *auditRun) checkFiles(ctx context.Context) error {
	if a.dir == nil {
		return nil
	}
	if a.expected != nil {
		for e, err := range a.expected.All(ctx, "") {
			if err == nil && a.matches(&e.Change) {
				err = a.checkFile(ctx, *e)
			}
			if err != nil {
				return err
			}
		}
	}
	for l, err := range a.home.Ledger.ListedResources(ctx) {
		if err == nil {
			err = a.checkFile(ctx, l.Entry)
		}
		if err != nil {
			return err
		}
	}
	if err := a.repairFiles(ctx); err != nil {
		return err
	}
	if err := a.checkExtraFiles(ctx); err != nil {
		return err
	}
	if err := a.checkForeignFiles(ctx); err != nil {
		return err
	}
	return a.recheck(ctx)
}

// checkFile compares the file of one resource with the bookkeeping.
func (a *auditRun) checkFile(ctx context.Context, e feed.Entry) error {
	p, err := a.fileProblem(&e)
	if err != nil || p == nil {
		return err
	}
	p.entry = e.Clone()
	p.In, p.Loc = InFiles, p.entry.Change.Loc
	if !a.opts.Repair {
		return a.report(ctx, *p)
	}
	if a.toRepair = append(a.toRepair, *p); len(a.toRepair) < repairBatch {
		return nil
	}
	return a.repairFiles(ctx)
}

// fileProblem returns the problem of the file of an entry, or nil if there is none.
func (a *auditRun) fileProblem(e *feed.Entry) (*Problem, error) {
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
	if !failed && a.isAhead(&f) {
		e = &f.Entry
	}
	p := &Problem{Path: f.Path, Reason: reason}
	info, err := a.home.Root.Lstat(f.Path)
	switch {
	case isAbsent(err):
		p.Kind, p.Reason = Missing, "file does not exist"
		return p, nil
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		p.Kind, p.Reason = Damaged, "not a regular file"
		return p, nil
	case info.Size() != f.Size:
		p.Kind, p.Reason = Damaged, fmt.Sprintf("got %d bytes, want %d", info.Size(), f.Size)
		return p, nil
	case a.opts.Quick && info.ModTime().UnixNano() != f.Mtime:
		p.Kind, p.Reason = Damaged, "modification time has changed"
		return p, nil
	case !isCurrent(&f, e):
		p.Kind = Stale
		return p, nil
	case a.opts.Quick:
		return nil, nil
	}
	if p.Reason, err = a.contentProblem(&f, e); err != nil || p.Reason == "" {
		return nil, err
	}
	p.Kind = Damaged
	return p, nil
}

// isAhead reports whether a file has a change that is newer than the bookkeeping. An interrupted
// update leaves such files, because each file is recorded immediately and the update only at its
// end. They are correct.
func (a *auditRun) isAhead(f *ledger.File) bool {
	if a.expected == nil {
		return false
	}
	at := a.expected.Cursor() // a new log may reuse the position with another datetime
	return f.Entry.Position > at.Position && f.Entry.Micros > at.Micros
}

// isCurrent reports whether a file has the version of an entry.
func isCurrent(f *ledger.File, e *feed.Entry) bool {
	if hasContent(f, e) {
		return true
	}
	same, known := audit.SameContent(&f.Entry.Change, &e.Change)
	return e.Cursor == f.Entry.Cursor && (same || !known)
}

// contentProblem describes what is wrong with the content of a file. It returns "" if nothing
// is.
func (a *auditRun) contentProblem(f *ledger.File, e *feed.Entry) (string, error) {
	in, err := a.home.Root.Open(f.Path)
	if err != nil {
		return "", err
	}
	defer in.Close()
	sum := fetch.NewSum(e.Change.Hash)
	if _, err := io.Copy(sum, in); err != nil {
		return fmt.Sprintf("read content: %v", err), nil
	}
	if sum.SHA256() != f.SHA256 {
		return fmt.Sprintf("got content with sha-256:%s, want sha-256:%s", sum.SHA256(), f.SHA256), nil
	}
	if err := sum.Check(e.Change.Length); err != nil {
		return err.Error(), nil
	}
	return "", nil
}

// repairFiles fetches the files in toRepair again, and yields their problems with the results.
func (a *auditRun) repairFiles(ctx context.Context) error {
	if len(a.toRepair) == 0 {
		return nil
	}
	entries := make([]feed.Entry, len(a.toRepair))
	for i := range a.toRepair {
		entries[i] = a.toRepair[i].entry
	}
	err := a.dir.processEach(ctx, entries, func(ctx context.Context, e feed.Entry) (outcome, error) {
		return a.dir.updateFile(ctx, e, 0, true, nil)
	})
	if err != nil {
		return err
	}
	for _, p := range a.toRepair {
		remaining, err := a.fileProblem(&p.entry)
		if err != nil {
			return err
		}
		if p.Repaired = remaining == nil; remaining != nil {
			p.Reason = remaining.Reason
		}
		if err := a.yield(p); err != nil {
			return err
		}
	}
	a.toRepair = nil
	return nil
}

// checkExtraFiles finds files of resources that the source does not have.
func (a *auditRun) checkExtraFiles(ctx context.Context) error {
	var deleted []feed.Entry
	var found []Problem
	for f, err := range a.home.Ledger.Files(ctx) {
		if err != nil {
			return err
		}
		_, expected, err := a.expectedEntry(ctx, f.Loc)
		if err != nil {
			return err
		}
		if !expected && !a.isAhead(&f) {
			found = append(found, Problem{Kind: Extra, In: InFiles, Loc: f.Loc, Path: f.Path, Repaired: a.opts.Repair})
			deleted = append(deleted, feed.Entry{Change: resourcesync.Change{Loc: f.Loc, Change: resourcesync.Deleted}})
		}
	}
	if a.opts.Repair {
		if err := a.dir.removeResources(ctx, deleted); err != nil {
			return err
		}
	}
	for _, p := range found {
		if err := a.report(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// checkForeignFiles finds files that the mirror did not create.
func (a *auditRun) checkForeignFiles(ctx context.Context) error {
	return fs.WalkDir(a.home.Root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist) && name != ".": // removed in the meantime
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
		p := Problem{Kind: Extra, In: InFiles, Path: name, Reason: "not created by rsmirror"}
		if a.opts.Repair && a.opts.RemoveExtra {
			if err := a.dir.removeFile(name); err != nil {
				return err
			}
			p.Repaired = true
		}
		return a.report(ctx, p)
	})
}

// owns reports whether the mirror created the file at a path.
func (a *auditRun) owns(name string) (bool, error) {
	loc, owned, err := a.home.Ledger.Owner(name)
	if err != nil || !owned {
		return false, err
	}
	f, ok, err := a.home.Ledger.File(loc)
	return ok && f.Path == name, err
}

// expectedEntry returns the bookkeeping's entry of a resource. ok is false if the source does
// not have the resource, or if it does not belong in the mirror.
func (a *auditRun) expectedEntry(ctx context.Context, loc string) (e feed.Entry, ok bool, err error) {
	l, ok, err := a.home.Ledger.ListedResource(loc)
	if err != nil || ok || a.expected == nil {
		return l.Entry, ok, err
	}
	e, ok, err = a.expected.Get(ctx, loc)
	return e, ok && a.matches(&e.Change), err
}
