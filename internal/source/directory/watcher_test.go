//go:build linux

package directory

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rshub/rshub/internal/testutil"
)

const watchBase = "https://example.org/d/"

// A watchedDir is a watched directory, and the files that were reported.
type watchedDir struct {
	*testDir
	*Watcher
	known map[string]string   // hashes by loc
	dirs  map[string]bool     // prefixes of known locs that end in a slash
	times map[string][]string // observations of a loc, in order
	lost  int                 // number of full lists
}

// newWatch watches a directory that has these files.
func newWatch(t *testing.T, files ...string) *watchedDir {
	t.Helper()
	w := newUnread(t, files...)
	go w.run()
	return w
}

// newUnread watches a directory without reading the events of the system yet.
func newUnread(t *testing.T, files ...string) *watchedDir {
	t.Helper()
	p := newTestDir(t)
	for _, name := range files {
		p.write(name, "of "+name)
	}
	return p.watch()
}

// watch watches the place without reading the events of the system yet.
func (p *testDir) watch() *watchedDir {
	p.Helper()
	watcher, err := newWatcher(p.open())
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() {
		if err := watcher.Close(); err != nil {
			p.Error(err)
		}
	})
	w := &watchedDir{testDir: p, Watcher: watcher, dirs: map[string]bool{}, times: map[string][]string{}}
	w.relist()
	return w
}

// relist lists everything, as after the start or after lost events.
func (w *watchedDir) relist() {
	w.Helper()
	w.known = map[string]string{}
	for e, err := range w.tree.Resources(w.Context()) {
		if err != nil {
			continue // a gap
		}
		w.setKnown(e.Change.Loc, e.Change.Hash)
	}
}

func (w *watchedDir) setKnown(loc, hash string) {
	w.known[loc] = hash
	for i := len(watchBase); i < len(loc); i++ {
		if loc[i] == '/' {
			w.dirs[loc[:i+1]] = true
		}
	}
}

// next applies the next observations of the Watcher.
func (w *watchedDir) next(ctx context.Context) error {
	sights, err := w.Next(ctx)
	if errors.Is(err, ErrLost) {
		w.lost++
		w.relist()
		return nil
	}
	for _, s := range sights {
		seen := ""
		if delete(w.known, s.Loc); s.Entry != nil {
			seen = s.Entry.Change.Hash
			w.setKnown(s.Loc, seen)
		}
		w.times[s.Loc] = append(w.times[s.Loc], seen)
		if s.Prefix != "" && w.dirs[s.Prefix] {
			maps.DeleteFunc(w.known, func(loc, _ string) bool { return strings.HasPrefix(loc, s.Prefix) })
		}
	}
	return err
}

// readFiles returns the files of the directory, read by the test itself.
func (w *watchedDir) readFiles() map[string]string {
	w.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(w.dir, func(path string, d fs.DirEntry, err error) error {
		rel := strings.TrimPrefix(path, w.dir+"/")
		if err != nil || !d.Type().IsRegular() || w.tree.checkPath(rel) != nil || w.tree.exclude.excludesPath(rel) {
			return err
		}
		b, err := os.ReadFile(path)
		all[watchBase+escape(rel)] = fmt.Sprintf("sha-256:%x", sha256.Sum256(b))
		return err
	})
	if err != nil {
		w.Fatal(err)
	}
	return all
}

// waitSettled applies observations until they equal the files of the directory.
func (w *watchedDir) waitSettled() {
	w.Helper()
	want := w.readFiles()
	ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
	defer cancel()
	for !maps.Equal(w.known, want) {
		if err := w.next(ctx); err != nil {
			for loc, hash := range want {
				if w.known[loc] != hash {
					w.Errorf("%s is known in another version", loc)
				}
			}
			for loc := range w.known {
				if want[loc] == "" {
					w.Errorf("removed %s is still known", loc)
				}
			}
			w.Fatalf("Next() = %v, want more observations", err)
		}
	}
}

// follows applies observations until done reports that the test has made its changes, or why it
// could not.
func (w *watchedDir) follows(done <-chan error) {
	w.Helper()
	for {
		select {
		case err := <-done:
			w.do(err)
			return
		default:
			ctx, cancel := context.WithTimeout(w.Context(), 20*time.Millisecond)
			if err := w.next(ctx); err != nil && ctx.Err() == nil {
				w.Fatal(err)
			}
			cancel()
		}
	}
}

// do fails the test if a step failed.
func (w *watchedDir) do(errs ...error) {
	w.Helper()
	if err := errors.Join(errs...); err != nil {
		w.Fatal(err)
	}
}

func (w *watchedDir) path(name string) string { return filepath.Join(w.dir, name) }

func TestWatcher(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		act  func(w *watchedDir)
		lost bool // everything is listed again
	}{
		{"a new file", func(w *watchedDir) { w.write("new", "1") }, false},
		{"a file that changes", func(w *watchedDir) { w.write("a", "2") }, false},
		{"a file that goes", func(w *watchedDir) { w.do(os.Remove(w.path("a"))) }, false},
		{"a file that is moved", func(w *watchedDir) { w.do(os.Rename(w.path("a"), w.path("d/e/a"))) }, false},
		{"a file that is replaced by a move", func(w *watchedDir) {
			w.write(".#a", "2")
			w.do(os.Rename(w.path(".#a"), w.path("a")))
		}, false},
		{"a file that is moved out", func(w *watchedDir) { w.do(os.Rename(w.path("a"), filepath.Join(w.TempDir(), "a"))) }, false},
		{"many new directories", func(w *watchedDir) {
			for i := range 30 {
				w.write(fmt.Sprintf("n/%d/%d/x", i%5, i), "1")
			}
		}, false},
		{"a directory that goes", func(w *watchedDir) { w.do(os.RemoveAll(w.path("d"))) }, false},
		{"recreated directory", func(w *watchedDir) {
			w.do(os.RemoveAll(w.path("d")))
			w.write("d/e/other", "1")
		}, false},
		{"a directory with contents that is moved in", func(w *watchedDir) {
			from := newTestDir(w.T)
			from.write("in/deep/er/x", "1")
			from.write("in/y", "2")
			w.do(os.Rename(filepath.Join(from.dir, "in"), w.path("d/in")))
		}, false},
		{"a directory that is renamed", func(w *watchedDir) { w.do(os.Rename(w.path("d"), w.path("D"))) }, true},
		{"a directory that is moved out", func(w *watchedDir) { w.do(os.Rename(w.path("d/e"), filepath.Join(w.TempDir(), "e"))) }, true},
		{"a directory that is swapped for another", func(w *watchedDir) {
			w.write("next/e/f", "1")
			w.do(os.Rename(w.path("d"), w.path("old~")), os.Rename(w.path("next"), w.path("d")))
		}, true},
		{"a file that becomes a directory", func(w *watchedDir) {
			w.do(os.Remove(w.path("a")))
			w.write("a/in", "1")
		}, false},
		{"a directory that becomes a file", func(w *watchedDir) {
			w.do(os.RemoveAll(w.path("d")))
			w.write("d", "1")
		}, false},
		{"a file that becomes a link", func(w *watchedDir) { w.do(os.Remove(w.path("a")), os.Symlink("d/x", w.path("a"))) }, false},
		{"a directory that becomes a link", func(w *watchedDir) {
			w.do(os.RemoveAll(w.path("d")), os.Symlink("/", w.path("d")))
		}, false},
		{"a link that becomes a file", func(w *watchedDir) {
			w.do(os.Symlink("a", w.path("link")), os.Remove(w.path("link")))
			w.write("link", "1")
		}, false},
		{"a file that becomes a pipe", func(w *watchedDir) { w.do(os.Remove(w.path("a")), syscall.Mkfifo(w.path("a"), 0o644)) }, false},
		{"names that are not UTF-8", func(w *watchedDir) {
			w.write("bad\xff", "1")
			w.write("bad\xfe/in", "1")
			w.do(os.Rename(w.path("a"), w.path("bad\xfd")))
		}, false},
		{"what editors leave", func(w *watchedDir) {
			w.write("d/x~", "1")
			w.write(".x.swp", "1")
		}, false},
		{"a file without its content's change", func(w *watchedDir) { w.do(os.Chmod(w.path("a"), 0o600)) }, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := newWatch(t, "a", "d/x", "d/e/f", "d/e/g/h")
			test.act(w)
			w.waitSettled()
			// Events come in order, so a reader that has seen this one has seen all earlier ones.
			w.write("at the end", "1")
			w.waitSettled()
			lost := w.lost
			if (lost > 0) != test.lost { // several times if the events come slowly
				t.Errorf("got %d full lists", lost)
			}
			for loc := range w.times {
				if strings.Contains(loc, "~") || strings.Contains(loc, "%F") || strings.HasSuffix(loc, ".swp") {
					t.Errorf("got an observation of %s", loc)
				}
			}
			// Whatever happened: directories are watched under their current names.
			var dirs []string
			w.do(filepath.WalkDir(w.dir, func(path string, d fs.DirEntry, err error) error {
				if err == nil && d.IsDir() {
					dirs = append(dirs, path)
				}
				return err
			}))
			for _, dir := range dirs {
				w.do(os.WriteFile(filepath.Join(dir, "later"), []byte("1"), 0o644))
			}
			w.waitSettled()
			if w.lost != lost {
				t.Errorf("got %d full lists at the end", w.lost-lost)
			}
		})
	}
}

// If the directory itself is removed, no file is reported as deleted.
func TestWatcherOfRemovedDirectory(t *testing.T) {
	t.Parallel()
	w := newWatch(t, "a", "b")
	w.do(os.Rename(w.dir, w.dir+"-moved"))
	if sights, err := w.Next(t.Context()); !errors.Is(err, ErrLost) {
		t.Errorf("Next() = %v, %v, want ErrLost", sights, err)
	}
}

// Another directory in the place of the listed one, such as an empty one because a disk was
// unmounted, causes no observations of files: everything is listed again.
func TestWatcherOfReplacedDirectory(t *testing.T) {
	p := newTestDir(t)
	p.write("a", "one")
	place := func(dir string) {
		link := dir + ".link"
		if err := errors.Join(os.Symlink(dir, link), os.Rename(link, p.dir)); err != nil {
			t.Fatal(err)
		}
	}
	listed := p.dir
	p.dir = filepath.Join(t.TempDir(), "watched")
	place(listed)
	w := p.watch()
	go w.run()
	p.write("a", "two")
	place(t.TempDir())
	if sights, err := w.Next(t.Context()); !errors.Is(err, ErrLost) {
		t.Errorf("Next = %+v, %v, want ErrLost", sights, err)
	}
}

// The system drops events that are not read. Then everything is listed again, and later changes are
// reported.
func TestWatcherOverflow(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events")
	if err != nil {
		t.Skipf("the bound of the queue is not known: %v", err)
	}
	bound, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || bound > 200_000 {
		t.Skipf("the queue takes %s events", text)
	}
	w := newUnread(t, "a", "b", "d/c")
	for i := range bound + 20_000 { // some fit into the buffers of the program
		w.do(os.Chmod(w.path([]string{"a", "b"}[i%2]), 0o600|fs.FileMode(i%2))) // the system merges consecutive equal events
	}
	w.write("d/c", "lost")
	w.write("d/new", "lost")
	go w.run()
	w.waitSettled()
	if w.lost == 0 || len(w.times[watchBase+"d/new"]) > 0 {
		t.Errorf("got %d full lists and observations %v", w.lost, w.times)
	}
	w.write("sentinel", "1") // a reader of this event has also seen the loss of earlier ones, if any
	w.waitSettled()
	lost := w.lost
	w.write("d/c", "after that")
	w.write("d/newer/x", "after that")
	w.waitSettled()
	if w.lost != lost || len(w.times[watchBase+"d/c"]) == 0 {
		t.Errorf("after that, got %d full lists and observations %v", w.lost, w.times)
	}
}

// Many files are created together.
func TestWatcherManyFiles(t *testing.T) {
	t.Parallel()
	n := 20_000
	switch {
	case os.Getenv("RSHUB_PROVE") != "":
		n = 100_000
	case testing.Short():
		n = 5_000
	}
	w := newWatch(t, "a")
	done := make(chan error, 1)
	go func() {
		var errs error
		for i := range n {
			dir := w.path(fmt.Sprintf("many/%d", i%50))
			if i < 50 {
				errs = errors.Join(errs, os.MkdirAll(dir, 0o755))
			}
			errs = errors.Join(errs, os.WriteFile(fmt.Sprintf("%s/%d", dir, i), fmt.Append(nil, i), 0o644))
		}
		done <- errs
	}()
	w.follows(done) // observations arrive in the meantime
	w.waitSettled()
	if len(w.known) != n+1 {
		t.Errorf("got %d known files", len(w.known))
	}
}

// Too many dirty paths count as lost events.
func TestDirtyPathsAreBounded(t *testing.T) {
	t.Parallel()
	var d dirtyPaths
	for i := range maxDirty {
		d.mark(strconv.Itoa(i), pathState{})
	}
	if d.lost || len(d.paths) != maxDirty {
		t.Errorf("got lost %v with %d paths", d.lost, len(d.paths))
	}
	if d.mark("one more", pathState{}); !d.lost || len(d.paths) > 0 {
		t.Errorf("got lost %v with %d paths", d.lost, len(d.paths))
	}
}

// Files and directories change at random while they are watched.
func TestWatcherRandom(t *testing.T) {
	t.Parallel()
	r := testutil.Rand(t)
	w := newWatch(t, "d0/f0", "d1/d2/f1")
	path := func(depth int) (p string) {
		p = w.dir
		for range depth {
			p = filepath.Join(p, fmt.Sprint("d", r.IntN(3)))
		}
		return p
	}
	rounds := 30
	if testing.Short() {
		rounds = 8
	}
	for range rounds {
		done := make(chan error)
		go func() {
			defer close(done)
			for range 60 { // errors are of files that do not exist
				dir := path(r.IntN(4))
				file := filepath.Join(dir, fmt.Sprint("f", r.IntN(4)))
				switch r.IntN(8) {
				case 0:
					_ = os.Remove(file)
				case 1:
					if dir != w.dir {
						_ = os.RemoveAll(dir)
					}
				case 2:
					if dir != w.dir {
						_ = os.Rename(dir, path(1+r.IntN(3)))
					}
				case 3:
					_ = os.Rename(file, filepath.Join(path(r.IntN(3)), "f9"))
				default:
					_ = os.MkdirAll(dir, 0o755)
					_ = os.WriteFile(file, fmt.Append(nil, r.Uint64()), 0o644)
				}
			}
		}()
		w.follows(done)
		w.waitSettled()
	}
}

// A file that keeps growing is reported once, complete, after it has settled.
func TestWatcherOfGrowingFile(t *testing.T) {
	t.Parallel()
	w := newUnread(t, "log")
	w.tree.opts.Settle = time.Second
	grown := 0
	grow := func() {
		f, err := os.OpenFile(w.path("log"), os.O_APPEND|os.O_WRONLY, 0)
		w.do(err)
		_, err = f.WriteString("more\n")
		w.do(err, f.Close(), os.Chtimes(w.path("log"), w.now(), w.now()))
	}
	w.slept = func() {
		if grown++; grown < 8 {
			grow()
		}
	}
	go w.run()
	begin := w.now()
	grow()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for len(w.times) == 0 {
		w.do(w.next(ctx))
	}
	if want := w.readFiles()[watchBase+"log"]; w.known[watchBase+"log"] != want || len(w.times[watchBase+"log"]) != 1 {
		t.Errorf("got observations %s, want %s", w.times, want)
	}
	if after := w.now().Sub(begin); grown < 8 || after < 8*time.Second {
		t.Errorf("got the observation after %d writes and %v", grown, after)
	}
}

// A file that a list leaves out because it is being written is reported after it has settled, even
// if its directory was not watched yet at the last write.
func TestWatcherOfUnsettledFile(t *testing.T) {
	t.Parallel()
	p := newTestDir(t)
	p.opts.Settle = time.Second
	p.write("a", "1")
	p.write("d/z", "1")
	touch := func() {
		for _, name := range []string{"a", "d/z"} {
			if err := os.Chtimes(filepath.Join(p.dir, name), p.now(), p.now()); err != nil {
				t.Fatal(err)
			}
		}
	}
	touch()
	p.slept = touch // the list waits for a until its time is used up, then it reads d
	w := p.watch()
	p.slept = nil
	go w.run()
	if len(w.known) > 0 {
		t.Fatalf("got list %v", w.known)
	}
	w.waitSettled()
	if w.lost > 0 {
		t.Error("got a full list")
	}
}

// If the system refuses more watches, the other directories are still watched. The unwatched ones
// are counted, and the message has advice.
func TestWatcherLimit(t *testing.T) {
	t.Parallel()
	w := newWatch(t, "a", "d/b")
	w.add = func(name string) error {
		if strings.Contains(name, "/more") {
			return &os.SyscallError{Syscall: "inotify_add_watch", Err: syscall.ENOSPC}
		}
		return w.Watcher.fs.Add(name)
	}
	if n, err := w.Unwatched(); n != 0 || err != nil {
		t.Errorf("Unwatched() = %d, %v, want 0, nil", n, err)
	}
	w.write("more/x", "1")
	w.write("more/yet/y", "1")
	w.waitSettled()            // files in a new directory are reported
	w.write("more/yet/z", "1") // later files in it are not
	w.write("d/b", "2")
	for len(w.times[watchBase+"d/b"]) == 0 {
		w.do(w.next(t.Context()))
	}
	n, err := w.Unwatched()
	if n != 2 || err == nil || !strings.Contains(err.Error(), "sysctl fs.inotify.max_user_watches") || len(w.times[watchBase+"more/yet/z"]) > 0 {
		t.Errorf("Unwatched() = %d, %v; got observations %v", n, err, w.times)
	}
	w.relist()
	w.waitSettled()
	if n, err := w.Unwatched(); n != 2 || err == nil {
		t.Errorf("after a list: Unwatched() = %d, %v, want 2 and an error", n, err)
	}
	w.add = func(name string) error { return &fs.PathError{Op: "watch", Path: name, Err: syscall.EACCES} }
	w.relist()
	if n, err := w.Unwatched(); n != 4 || err == nil || !strings.Contains(err.Error(), "watch .: ") {
		t.Errorf("Unwatched() = %d, %v, want 4 and an error that names the directory", n, err)
	}
}

// An unreadable file is not reported as deleted.
func TestWatcherOfUnreadableFile(t *testing.T) {
	t.Parallel()
	if os.Getuid() == 0 {
		t.Skip("root may read everything; see also e2e")
	}
	w := newWatch(t, "a", "b", "d/c")
	w.do(os.Chmod(w.path("a"), 0), os.Chmod(w.path("d"), 0))
	defer os.Chmod(w.path("d"), 0o700)
	w.write("b", "2")
	for len(w.times[watchBase+"b"]) == 0 {
		w.do(w.next(t.Context()))
	}
	if len(w.known) != 3 {
		t.Errorf("got known files %v", w.known)
	}
}

// Next ends with its context. The next call returns the missed paths.
func TestWatcherNextCanceled(t *testing.T) {
	t.Parallel()
	w := newWatch(t, "a")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if sights, err := w.Next(ended); err != context.Canceled {
		t.Errorf("Next() = %v, %v, want context.Canceled", sights, err)
	}
	for i := range 3 {
		name := fmt.Sprint("new", i)
		w.write(name, "1")
		for dirty := false; !dirty; runtime.Gosched() {
			w.mu.Lock()
			_, dirty = w.dirty.paths[name]
			w.mu.Unlock()
		}
		if sights, err := w.Next(ended); err != context.Canceled {
			t.Errorf("Next() = %v, %v, want context.Canceled", sights, err)
		}
	}
	w.waitSettled()
	if w.lost > 0 {
		t.Error("got a full list")
	}
}

// A directory is found missing before the event of its move arrives. Then its watch and those of
// the directories below it still have their old paths.
func TestWatcherOfLateMove(t *testing.T) {
	t.Parallel()
	w := newUnread(t, "from/f", "from/sub/f")
	w.do(os.Rename(w.path("from"), w.path("to")))
	w.mark("from", pathState{})
	w.do(w.next(t.Context()))
	go w.run()
	w.waitSettled()
	for _, name := range []string{"to/f", "to/sub/f"} {
		w.do(os.Remove(w.path(name)))
		w.waitSettled()
	}
}
