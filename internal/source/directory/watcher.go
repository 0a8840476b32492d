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

// ErrLost means that the Watcher no longer knows what may have changed. The caller must
// list the Tree again.
var ErrLost = errors.New("events were lost")

// A Watcher notices when the files of a Tree change. An event of the system is only a
// hint that a path may have changed. The Watcher looks at the path when there was no
// event for the Settle of the Tree. So it reports no false changes, and no half-written
// files.
//
// A directory is watched before it is read, by Resources too. So a change either comes
// before the reading, or causes an event. If Resources leaves a file out because it is
// being written, the Watcher looks at it later.
type Watcher struct {
	tree *Tree
	fs   *fsnotify.Watcher
	add  func(name string) error // watches a directory; fs.Add, or a test's function
	done chan struct{}           // closed when run has ended

	// Only the goroutine that calls Resources and Next uses these.
	watched map[string]bool      // watched directories
	missing map[string]time.Time // watched directories that were recently found missing, and when
	trouble error                // error of the first directory that could not be watched since the last Trouble
	blind   int                  // how many directories could not be watched

	mu    sync.Mutex
	dirt  dirt
	moved backoff.Wakeup // says that a path was marked
}

// missingFor is longer than an event of the system takes to come.
const missingFor = time.Minute

// batch is how many paths one Next looks at.
const batch = 1_000

// Watch watches a Tree. The caller then has to list the Tree, because a directory is
// watched only from its listing on. The caller closes the Watcher.
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
		return nil, fmt.Errorf("too many programs of this user watch directories: raise fs.inotify.max_user_instances (as root: sysctl fs.inotify.max_user_instances=1024), or run rspublish sync from time to time instead: %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", t.dir, err)
	}
	w := &Watcher{tree: t, fs: f, add: f.Add, done: make(chan struct{}), watched: map[string]bool{}, missing: map[string]time.Time{}, moved: backoff.NewWakeup()}
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

// run notes the events of the system, until Close.
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

// busy marks a file that is being written. The Watcher looks at it again even without an
// event, because there is no event for a write before its directory was watched.
func (w *Watcher) busy(path string) {
	w.mark(path, spot{quiet: w.tree.opts.Now().Add(max(w.tree.opts.Settle, 10*time.Millisecond))})
}

func (w *Watcher) change(change func(*dirt)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(&w.dirt)
	w.moved.Wake()
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
// ErrLost if anything may have changed. If ctx is done, it returns ctx's error, and the
// next call returns the missed paths. A path that cannot be read is left for the next
// list.
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

// wait waits until a time or until a path is marked. The zero Time means no
// time limit.
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
	clear(w.missing)
}

// look looks at paths. It returns existing files before removed ones.
func (w *Watcher) look(ctx context.Context, paths map[string]spot) ([]reconcile.Sight, error) {
	r, err := newReader(w.tree)
	if err != nil {
		return w.lost() // the next list reports the error
	}
	defer r.close()
	var files, gone []reconcile.Sight
	types := map[string]string{}
	maps.DeleteFunc(w.missing, func(_ string, at time.Time) bool { return w.tree.opts.Now().Sub(at) > missingFor })
	for _, p := range slices.Sorted(maps.Keys(paths)) {
		if w.tree.unfit(p) != nil {
			continue // the list reports it
		}
		if _, missing := w.missing[p]; paths[p].moved && (missing || w.watched[p]) {
			// The watches of the directories below it still have their old
			// paths.
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
	if now, err := os.Stat(w.tree.dir); err != nil || !os.SameFile(now, w.tree.listed) {
		return w.lost() // the directory of a disk that was unmounted looks empty
	}
	return append(files, gone...), nil
}

func (w *Watcher) lost() ([]reconcile.Sight, error) {
	w.forget()
	return nil, ErrLost
}

// errDirectory means that the path is a directory, not a file.
var errDirectory = errors.New("it is a directory")

// sight returns the Sight of a path.
func (w *Watcher) sight(ctx context.Context, r *reader, p string, types map[string]string) (reconcile.Sight, error) {
	s := reconcile.Sight{Loc: w.tree.Loc(p)}
	info, err := os.Lstat(w.tree.join(p))
	if err == nil && info.IsDir() {
		return s, errDirectory // known files below it may still exist
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

// arrive watches a directory and those below it, and marks everything in them, because it
// may be older than the watch.
func (w *Watcher) arrive(dir string) {
	w.enter(dir)
	entries, err := os.ReadDir(w.tree.join(dir))
	if err != nil {
		return // it is gone, and an event follows; or the next list reports the error
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
