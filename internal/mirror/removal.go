package mirror

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"syscall"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/mirror/ledger"
	"github.com/rshub/rshub/internal/source/reconcile"
)

// removeResources removes the files of resources. If they exceed the limit, it removes none and
// returns a *reconcile.TooManyDeletions.
func (d *Directory) removeResources(ctx context.Context, deleted []feed.Entry) error {
	d.removing.Lock()
	defer d.removing.Unlock()
	var locked []string
	defer func() {
		for _, loc := range locked {
			d.unlockResource(loc)
		}
	}()
	var b ledger.Batch
	var files, paths []string // locs of existing files, and paths where files may exist
	for i := range deleted {
		loc := deleted[i].Change.Loc
		if err := d.lockResource(ctx, loc); err != nil {
			return err
		}
		locked = append(locked, loc)
		name, placed, err := d.home.Ledger.Path(loc)
		if err != nil {
			return err
		}
		if placed {
			b.RemoveFile(loc)
			paths = append(paths, name)
			if info, err := d.home.Root.Lstat(name); err == nil && !info.IsDir() { // even if the file has no record
				files = append(files, loc)
			}
		}
		if _, ok, err := d.home.Ledger.Failure(loc); err != nil {
			return err
		} else if ok {
			b.RemoveFile(loc)
		}
	}
	if b.Empty() {
		return nil
	}
	t, err := d.checkDeletions(uint64(len(files)), someListed)
	if err != nil {
		return err
	}
	b.PutMeta("deletions", t)
	dirs := map[string]bool{}
	for _, name := range paths {
		if err := d.removeFile(name); err != nil {
			return err
		}
		dirs[path.Dir(name)] = true
	}
	if err := d.syncDirs(dirs); err != nil { // otherwise a crash of the machine could restore a file that has no record
		return err
	}
	for dir := range dirs {
		d.removeEmptyDirs(dir)
	}
	if err := d.home.Ledger.Commit(&b); err != nil {
		return err
	}
	for _, loc := range files {
		d.opts.OnAction(Action{Kind: Removed, Loc: loc})
	}
	return nil
}

// mayDelete returns a *reconcile.TooManyDeletions if deleting n more resources exceeds the
// limit.
func (d *Directory) mayDelete(n, _ uint64) error {
	_, err := d.checkDeletions(n, someListed)
	return err
}

// mayEmpty returns a *reconcile.TooManyDeletions if the mirror has files that must not be
// deleted although the source lists no resource.
func (d *Directory) mayEmpty() error {
	_, err := d.checkDeletions(uint64(d.home.Ledger.Counts().Files), 0)
	return err
}

const someListed = 1 // argument of checkDeletions: the source has resources

// checkDeletions returns the deletions of the last day with n more. It returns an error if they
// exceed the limit. listed is the number of resources that the source lists; only zero matters.
func (d *Directory) checkDeletions(n, listed uint64) (t reconcile.Deletions, err error) {
	if _, err := d.home.Ledger.Meta("deletions", &t); err != nil {
		return t, err
	}
	count, now := uint64(d.home.Ledger.Counts().Files), time.Now()
	if err := t.Check(d.opts.MaxDelete, n, count, listed, now); err != nil {
		return t, err
	}
	t.Add(d.opts.MaxDelete, n, count, now)
	return t, nil
}

// removeFile removes a file. It returns nil if there is none, if the path is a directory, which
// belongs to no resource, or if a foreign symbolic link leads the path out of the mirror.
func (d *Directory) removeFile(name string) error {
	info, err := d.home.Root.Lstat(name)
	if err == nil && !info.IsDir() {
		err = d.home.Root.Remove(name)
	}
	if isAbsent(err) {
		return nil
	}
	return err
}

// isAbsent reports whether an error of os.Root means that the mirror has no file at a path:
// nothing exists, or a foreign file or link is in the place of a directory.
func isAbsent(err error) bool {
	_, system := errors.AsType[syscall.Errno](err) // os.Root rejects a path that leads out with an error of its own
	return err != nil && !system || errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// removeEmptyDirs removes a directory and its parents as long as they are empty. It leaves a
// foreign file or link in the place of a directory.
func (d *Directory) removeEmptyDirs(dir string) {
	for ; dir != "."; dir = path.Dir(dir) {
		info, err := d.home.Root.Lstat(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil || !info.IsDir() || d.home.Root.Remove(dir) != nil {
			return
		}
	}
}
