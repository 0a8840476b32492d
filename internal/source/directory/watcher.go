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

	"github.com/rshub/rshub/internal/backoff"
	"github.com/rshub/rshub/internal/source/reconcile"
)

// ErrLost means that the Watcher no longer knows which files may have changed. The caller must list
// the Tree again.
var ErrLost = errors.New("events were lost")

// A Watcher detects changes of the files of a Tree. An event of the system is only a hint that a
// path may have changed. The Watcher checks the path after it had no event for the Settle of the
// Tree. So it reports no false changes and no half-written files.
//
// A directory is watched before it is read, also by Resources. So a change either precedes the
// reading or causes an event. If Resources leaves a file out because it is being written, the
// Watcher checks it later.
type Watcher struct {
	tree *Tree
	fs   *fsnotify.Watcher
	add  func(name string) error // watches a directory; fs.Add, or a test's function
	done chan struct{}           // closed after run has returned

	// Used only by the goroutine that calls Resources and Next.
	watched      map[string]bool      // watched directories
	missing      map[string]time.Time // watched directories that were recently found missing, and when
	unwatchedErr error                // error of the first directory that could not be watched since the last call of Unwatched
	unwatched    int                  // number of directories that could not be watched since then

	mu     sync.Mutex
	dirty  dirtyPaths
	marked backoff.Wakeup // signaled when a path was marked
}

// missingFor is longer than an event of the system takes to arrive.
const missingFor = time.Minute

// maxNext is the maximum number of paths that one Next checks.
const maxNext = 1_000

// Watch watches a Tree. The caller must then list the Tree, because a directory is watched only
// from its listing on. The caller must close the Watcher.
//
// If too many programs watch directories, the error says how to raise the limit.
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
		return nil, fmt.Errorf("watch directory: too many programs of this user watch directories; raise fs.inotify.max_user_instances (as root: sysctl fs.inotify.max_user_instances=1024), or run rspublish sync from time to time instead: %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", t.dir, err)
	}
	w := &Watcher{tree: t, fs: f, add: f.Add, done: make(chan struct{}), watched: map[string]bool{}, missing: map[string]time.Time{}, marked: backoff.NewWakeup()}
	t.onDirectory, t.onBusy = w.watchDir, w.markBusy
	return w, nil
}

// Close stops watching. It waits until the goroutine of the Watcher has stopped.
func (w *Watcher) Close() error {
	w.tree.onDirectory, w.tree.onBusy = ignorePath, ignorePath
	err := w.fs.Close()
	<-w.done
	return err
}

// run handles the events of the system until Close.
func (w *Watcher) run() {
	defer close(w.done)
	for events, errs := w.fs.Events, w.fs.Errors; events != nil || errs != nil; {
		select {
		case e, ok := <-events:
			if !ok {
				events = nil
				continue
			}
			w.handleEvent(e)
		case _, ok := <-errs:
			if !ok {
				errs = nil
				continue
			}
			w.updateDirty((*dirtyPaths).markAll) // the queue of events overflowed, or they cannot be read
		}
	}
}

// handleEvent marks the path of an event.
func (w *Watcher) handleEvent(e fsnotify.Event) {
	rel, err := filepath.Rel(w.tree.dir, e.Name)
	if err != nil {
		return
	}
	path := filepath.ToSlash(rel)
	switch {
	case path == ".":
		if e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename) {
			w.updateDirty((*dirtyPaths).markAll)
		}
	case !w.tree.exclude.excludesPath(path):
		w.mark(path, pathState{
			dueAt:     w.tree.opts.Now().Add(w.tree.opts.Settle),
			created:   e.Has(fsnotify.Create),
			movedAway: e.Has(fsnotify.Rename),
		})
	}
}

func (w *Watcher) mark(path string, s pathState) {
	w.updateDirty(func(d *dirtyPaths) { d.mark(path, s) })
}

// markBusy marks a file that is being written. The Watcher checks it again even without an event,
// because a write before its directory was watched causes no event.
func (w *Watcher) markBusy(path string) {
	w.mark(path, pathState{dueAt: w.tree.opts.Now().Add(max(w.tree.opts.Settle, 10*time.Millisecond))})
}

func (w *Watcher) updateDirty(change func(*dirtyPaths)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(&w.dirty)
	w.marked.Wake()
}

// watchDir watches a directory.
func (w *Watcher) watchDir(path string) {
	err := w.add(w.tree.join(path))
	switch {
	case err == nil:
		w.watched[path] = true
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
	default:
		w.unwatched++
		if w.unwatchedErr == nil {
			w.unwatchedErr = fmt.Errorf("watch %s: %w", printable(path), err)
			if errors.Is(err, syscall.ENOSPC) {
				w.unwatchedErr = errors.New("watch directory: limit of watches for this user is reached; raise fs.inotify.max_user_watches (as root: sysctl fs.inotify.max_user_watches=1000000)")
			}
		}
	}
}

// Unwatched returns how many directories could not be watched since the last call of Unwatched, and
// the error of the first. Changes in them are seen only when the Tree is listed.
func (w *Watcher) Unwatched() (directories int, err error) {
	directories, err = w.unwatched, w.unwatchedErr
	w.unwatched, w.unwatchedErr = 0, nil
	return directories, err
}

// Next waits until paths have changed and settled, and returns an Observation of each. It returns
// ErrLost if any path may have changed. If ctx is done, it returns ctx's error, and the next call
// returns the missed paths. An unreadable path is left for the next list.
func (w *Watcher) Next(ctx context.Context) ([]reconcile.Observation, error) {
	for {
		w.mu.Lock()
		lost := w.dirty.lost
		w.dirty.lost = false
		due, next := w.dirty.takeDue(w.tree.opts.Now(), maxNext)
		w.mu.Unlock()
		switch {
		case lost:
			w.unwatchAll()
			return nil, ErrLost
		case len(due) == 0:
			if err := w.wait(ctx, next); err != nil {
				return nil, err
			}
			continue
		}
		sights, err := w.observePaths(ctx, due)
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

// wait waits until a time or until a path is marked. The zero Time means no time limit.
func (w *Watcher) wait(ctx context.Context, until time.Time) error {
	if !until.IsZero() {
		return w.tree.opts.Sleep(ctx, until.Sub(w.tree.opts.Now()))
	}
	select {
	case <-w.marked:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// unwatchAll stops watching all directories. The next list watches them again.
func (w *Watcher) unwatchAll() {
	for dir := range w.watched {
		_ = w.fs.Remove(w.tree.join(dir)) // the system may have removed the watch already
	}
	clear(w.watched)
	clear(w.missing)
}

// observePaths checks paths. It returns existing files before removed ones.
func (w *Watcher) observePaths(ctx context.Context, paths map[string]pathState) ([]reconcile.Observation, error) {
	r, err := newReader(w.tree)
	if err != nil {
		return w.reportLost() // the next list reports the error
	}
	defer r.close()
	var files, gone []reconcile.Observation
	types := map[string]string{}
	maps.DeleteFunc(w.missing, func(_ string, at time.Time) bool { return w.tree.opts.Now().Sub(at) > missingFor })
	for _, p := range slices.Sorted(maps.Keys(paths)) {
		if w.tree.checkPath(p) != nil {
			continue // the list reports it
		}
		if _, missing := w.missing[p]; paths[p].movedAway && (missing || w.watched[p]) {
			// The watches of the directories below it still have their old paths.
			return w.reportLost()
		}
		s, err := w.observe(ctx, r, p, types)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.Is(err, ErrBusy):
			w.markBusy(p)
			continue
		case errors.Is(err, errDirectory):
			if paths[p].created || !w.watched[p] {
				w.watchNew(p)
			}
		case errors.Is(err, errNoFile):
			if w.watched[p] { // if it was moved, the event may come later
				w.missing[p] = w.tree.opts.Now()
			}
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
	if now, err := os.Stat(w.tree.dir); err != nil || !os.SameFile(now, w.tree.listedInfo) {
		return w.reportLost() // the directory of an unmounted disk looks empty
	}
	return append(files, gone...), nil
}

func (w *Watcher) reportLost() ([]reconcile.Observation, error) {
	w.unwatchAll()
	return nil, ErrLost
}

// errDirectory means that the path is a directory, not a file.
var errDirectory = errors.New("path is a directory")

// observe returns the Observation of a path.
func (w *Watcher) observe(ctx context.Context, r *reader, p string, types map[string]string) (reconcile.Observation, error) {
	s := reconcile.Observation{Loc: w.tree.Loc(p)}
	info, err := os.Lstat(w.tree.join(p))
	if err == nil && info.IsDir() {
		return s, errDirectory // known files below it may still exist
	}
	s.Prefix = s.Loc + "/"
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

// watchNew watches a directory and those below it, and marks everything in them, because it may be
// older than the watch.
func (w *Watcher) watchNew(dir string) {
	w.watchDir(dir)
	entries, err := os.ReadDir(w.tree.join(dir))
	if err != nil {
		return // it was removed, and an event follows; or the next list reports the error
	}
	now := w.tree.opts.Now()
	for _, e := range entries {
		p := dir + "/" + e.Name()
		switch {
		case w.tree.exclude.excludes(p) || w.tree.checkPath(p) != nil:
		case e.IsDir():
			w.watchNew(p)
		case e.Type().IsRegular():
			w.mark(p, pathState{dueAt: now})
		}
	}
}
