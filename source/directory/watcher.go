package directory

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/rshub/rshub/source/reconcile"
)

// ErrLost means that the Watcher does not know any more what may have changed. The caller
// lists the Tree anew.
var ErrLost = errors.New("events were lost")

// A Watcher notices when the files of a Tree change. What the system tells is a hint that a
// path is dirty, and no more: the path is looked at when it has been quiet for the Settle
// of the Tree. So nothing is taken for a change that is none, and a file that is being
// written is not seen half.
//
// A directory is watched before it is read, by Resources too. So a change either comes
// before the reading, or is told. A file that Resources leaves because it is being written
// is dirty from then on.
type Watcher struct {
	tree *Tree
	fs   *fsnotify.Watcher
	add  func(name string) error // watches a directory; that of fs, or of a test
	done chan struct{}           // closed when run has ended

	watched map[string]bool // directories; of Resources and Next, which are for one goroutine
	trouble error           // of the first directory that could not be watched since the last Trouble
	blind   int             // how many could not

	mu    sync.Mutex
	dirt  dirt
	moved chan struct{} // has room for one: something was marked
}

// batch is how many paths are looked at together.
const batch = 1_000

// Watch watches a Tree. The caller then lists the Tree, because directories are watched
// when they are listed, and closes the Watcher in the end.
//
// If the system has no room for another program that watches, the error says how to make
// room.
func Watch(t *Tree) (*Watcher, error) {
	w, err := newWatcher(t)
	if err != nil {
		return nil, err
	}
	go w.run()
	return w, nil
}

func newWatcher(t *Tree) (*Watcher, error) {
	f, err := fsnotify.NewBufferedWatcher(4096)
	if errors.Is(err, syscall.EMFILE) {
		return nil, fmt.Errorf("too many programs of this user watch directories: raise fs.inotify.max_user_instances (as root: sysctl fs.inotify.max_user_instances=1024), or run rspublish sync from time to time instead: %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", t.dir, err)
	}
	w := &Watcher{tree: t, fs: f, add: f.Add, done: make(chan struct{}), watched: map[string]bool{}, moved: make(chan struct{}, 1)}
	t.enter, t.busy = w.enter, w.busy
	return w, nil
}

// Close ends the watching.
func (w *Watcher) Close() error {
	w.tree.enter, w.tree.busy = nobody, nobody
	err := w.fs.Close()
	<-w.done
	return err
}

// run notes what the system tells, until Close.
func (w *Watcher) run() {
	defer close(w.done)
	for events, errs := w.fs.Events, w.fs.Errors; events != nil || errs != nil; {
		select {
		case e, ok := <-events:
			if !ok {
				events = nil
				continue
			}
			w.note(e)
		case _, ok := <-errs:
			if !ok {
				errs = nil
				continue
			}
			w.change((*dirt).lose) // the queue of events overflowed, or they cannot be read
		}
	}
}

// note notes one event.
func (w *Watcher) note(e fsnotify.Event) {
	rel, err := filepath.Rel(w.tree.dir, e.Name)
	if err != nil {
		return
	}
	path := filepath.ToSlash(rel)
	switch {
	case path == ".":
		if e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename) {
			w.change((*dirt).lose)
		}
	case !w.tree.exclude.within(path):
		w.mark(path, spot{
			quiet: w.tree.opts.Now().Add(w.tree.opts.Settle),
			came:  e.Has(fsnotify.Create),
			moved: e.Has(fsnotify.Rename),
		})
	}
}

func (w *Watcher) mark(path string, s spot) { w.change(func(d *dirt) { d.mark(path, s) }) }

// busy marks a file that is being written. It is looked at again, whether the system tells of
// it or not: what was written before its directory was watched is told by nobody.
func (w *Watcher) busy(path string) {
	w.mark(path, spot{quiet: w.tree.opts.Now().Add(max(w.tree.opts.Settle, 10*time.Millisecond))})
}

func (w *Watcher) change(change func(*dirt)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(&w.dirt)
	select {
	case w.moved <- struct{}{}:
	default:
	}
}

// enter watches a directory.
func (w *Watcher) enter(path string) {
	err := w.add(w.tree.join(path))
	switch {
	case err == nil:
		w.watched[path] = true
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
	default:
		w.blind++
		if w.trouble == nil {
			w.trouble = fmt.Errorf("%s cannot be watched: %w", printable(path), err)
			if errors.Is(err, syscall.ENOSPC) {
				w.trouble = errors.New("the system watches no more directories for this user: raise fs.inotify.max_user_watches (as root: sysctl fs.inotify.max_user_watches=1000000)")
			}
		}
	}
}

// Trouble returns how many directories could not be watched since the last Trouble, and why
// the first could not. Changes in them are only seen when the Tree is listed.
func (w *Watcher) Trouble() (directories int, err error) {
	directories, err = w.blind, w.trouble
	w.blind, w.trouble = 0, nil
	return directories, err
}

// Next waits until paths have changed and settled, and returns what is there. It returns
// ErrLost when anything may have changed, and ctx's error: then the next Next returns what
// this one did not. A path that cannot be looked at is left for the next list.
func (w *Watcher) Next(ctx context.Context) ([]reconcile.Sight, error) {
	for {
		w.mu.Lock()
		lost := w.dirt.lost
		w.dirt.lost = false
		due, next := w.dirt.take(w.tree.opts.Now(), batch)
		w.mu.Unlock()
		switch {
		case lost:
			w.forget()
			return nil, ErrLost
		case len(due) == 0:
			if err := w.wait(ctx, next); err != nil {
				return nil, err
			}
			continue
		}
		sights, err := w.look(ctx, due)
		if ctx.Err() != nil && err != nil {
			for path, s := range due {
				w.mark(path, s)
			}
		}
		if err != nil || len(sights) > 0 {
			return sights, err
		}
	}
}

// wait waits until a time, or, if that is zero, until something is marked.
func (w *Watcher) wait(ctx context.Context, until time.Time) error {
	if !until.IsZero() {
		return w.tree.opts.Sleep(ctx, until.Sub(w.tree.opts.Now()))
	}
	select {
	case <-w.moved:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// forget ends the watching of all directories. The next list watches them again.
func (w *Watcher) forget() {
	for dir := range w.watched {
		_ = w.fs.Remove(w.tree.join(dir)) // the system may have ended it already
	}
	clear(w.watched)
}

// look looks at paths. Files come before what is gone.
func (w *Watcher) look(ctx context.Context, paths map[string]spot) ([]reconcile.Sight, error) {
	r, err := newReader(w.tree)
	if err != nil {
		return w.lost() // the list will say what is wrong
	}
	defer r.close()
	var files, gone []reconcile.Sight
	types := map[string]string{}
	for _, p := range slices.Sorted(maps.Keys(paths)) {
		if w.tree.unfit(p) != nil {
			continue // the list reports it
		}
		if paths[p].moved && w.watched[p] {
			// The directories below keep their watches, with their old paths.
			return w.lost()
		}
		s, err := w.sight(ctx, r, p, types)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.Is(err, ErrBusy):
			w.busy(p)
			continue
		case errors.Is(err, errDirectory):
			if paths[p].came || !w.watched[p] {
				w.arrive(p)
			}
		case errors.Is(err, errNoFile):
			delete(w.watched, p)
		case err != nil:
			continue // the list reports it
		}
		if s.Entry != nil {
			files = append(files, s)
		} else {
			gone = append(gone, s)
		}
	}
	return append(files, gone...), nil
}

func (w *Watcher) lost() ([]reconcile.Sight, error) {
	w.forget()
	return nil, ErrLost
}

// errDirectory means that a directory is there, and no file.
var errDirectory = errors.New("it is a directory")

// sight returns what is at a path.
func (w *Watcher) sight(ctx context.Context, r *reader, p string, types map[string]string) (reconcile.Sight, error) {
	s := reconcile.Sight{Loc: w.tree.Loc(p)}
	info, err := os.Lstat(w.tree.join(p))
	if err == nil && info.IsDir() {
		return s, errDirectory // what is known below it may still be there
	}
	s.Below = s.Loc + "/"
	if err != nil || !info.Mode().IsRegular() {
		return s, noFile(err)
	}
	var none time.Duration
	rec, _, err := r.read(ctx, p, info, &none)
	if err == nil {
		s.Entry = w.tree.entry(&rec, 0, types)
	}
	return s, err
}

// arrive watches a directory and all below, and marks what is in it: that came before the
// watch.
func (w *Watcher) arrive(dir string) {
	w.enter(dir)
	entries, err := os.ReadDir(w.tree.join(dir))
	if err != nil {
		return // it is gone, and there will be an event for that; or the list reports it
	}
	now := w.tree.opts.Now()
	for _, e := range entries {
		p := dir + "/" + e.Name()
		switch {
		case w.tree.exclude.has(p) || w.tree.unfit(p) != nil:
		case e.IsDir():
			w.arrive(p)
		case e.Type().IsRegular():
			w.mark(p, spot{quiet: now})
		}
	}
}
