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

// remove removes the files of resources, unless they are too many.
func (d *Directory) remove(ctx context.Context, gone []feed.Entry) error {
	d.removing.Lock()
	defer d.removing.Unlock()
	var held []string
	defer func() {
		for _, loc := range held {
			d.release(loc)
		}
	}()
	var b ledger.Batch
	var files, paths []string // the locs of files that are there, and paths where files may be
	for i := range gone {
		loc := gone[i].Change.Loc
		if err := d.hold(ctx, loc); err != nil {
			return err
		}
		held = append(held, loc)
		name, placed, err := d.home.Ledger.Path(loc)
		if err != nil {
			return err
		}
		if placed {
			b.Remove(loc)
			paths = append(paths, name)
			if info, err := d.home.Root.Lstat(name); err == nil && !info.IsDir() { // also without a record
				files = append(files, loc)
			}
		}
		if _, ok, err := d.home.Ledger.Failure(loc); err != nil {
			return err
		} else if ok {
			b.Remove(loc)
		}
	}
	if b.Empty() {
		return nil
	}
	t, err := d.toll(uint64(len(files)), some)
	if err != nil {
		return err
	}
	b.Meta("deletions", t)
	dirs := map[string]bool{}
	for _, name := range paths {
		if err := d.unlink(name); err != nil {
			return err
		}
		dirs[path.Dir(name)] = true
	}
	if err := d.syncDirs(dirs); err != nil { // or a crash of the machine brings back a file that no record has
		return err
	}
	for dir := range dirs {
		d.prune(dir)
	}
	if err := d.home.Ledger.Commit(&b); err != nil {
		return err
	}
	for _, loc := range files {
		d.opts.Did(Deed{Kind: Removed, Loc: loc})
	}
	return nil
}

// mayDelete returns a *reconcile.TooManyDeletions if n resources must not be deleted now.
func (d *Directory) mayDelete(n, _ uint64) error {
	_, err := d.toll(n, some)
	return err
}

// mayEmpty returns a *reconcile.TooManyDeletions if all files must not be deleted because the source lists
// no resource.
func (d *Directory) mayEmpty() error {
	_, err := d.toll(uint64(d.home.Ledger.Counts().Files), 0)
	return err
}

const some = 1 // for toll: the source has resources

// toll returns the toll of the day with n more deletions, while the source has listed resources.
// It returns an error if they are too many.
func (d *Directory) toll(n, listed uint64) (t reconcile.Deletions, err error) {
	if _, err := d.home.Ledger.Meta("deletions", &t); err != nil {
		return t, err
	}
	held, now := uint64(d.home.Ledger.Counts().Files), time.Now()
	if err := t.Check(d.opts.MaxDelete, n, held, listed, now); err != nil {
		return t, err
	}
	t.Add(d.opts.MaxDelete, n, held, now)
	return t, nil
}

// unlink removes a file. It returns nil if there is no file, if the path is a directory,
// which belongs to no resource, or if a foreign link leads the path out of the mirror.
func (d *Directory) unlink(name string) error {
	info, err := d.home.Root.Lstat(name)
	if err == nil && !info.IsDir() {
		err = d.home.Root.Remove(name)
	}
	if absent(err) {
		return nil
	}
	return err
}

// absent reports whether an error of os.Root says that a mirror has no file at a path: there is
// none, or something foreign is in the place of a directory: a file, or a link that leads out.
func absent(err error) bool {
	_, system := errors.AsType[syscall.Errno](err) // Root itself refuses a path that leads out
	return err != nil && !system || errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// prune removes a directory and those above it, as long as they are empty. A foreign file or
// link in the place of a directory stays.
func (d *Directory) prune(dir string) {
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
