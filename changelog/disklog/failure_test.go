package disklog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
)

// filled returns a memory with one set, whose blocks end at 10, 20, ... 100.
func filled(t *testing.T, dir string, o Options) *Log {
	t.Helper()
	l := start(t, dir, o)
	ok(t, l.Make(t.Context(), "set", feed.Description{}, 10))
	add(t, l, "set", "x", 100)
	return l
}

// names fails the test unless err is ErrCorrupt and contains all the words.
func names(t *testing.T, err error, words ...string) {
	t.Helper()
	if !errors.Is(err, changelog.ErrCorrupt) {
		t.Fatalf("error = %v, want %v", err, changelog.ErrCorrupt)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error = %q, want %q in it", err, w)
		}
	}
}

func TestDamagedBlock(t *testing.T) {
	t.Parallel()
	l := filled(t, "data", Options{FS: vfs.NewMem()})
	defer stop(t, l)
	ctx := t.Context()
	key := logKey("set", 50)
	good, err := l.get(key)
	ok(t, err)
	at := func(p uint64) feed.Cursor {
		c, err := l.At(ctx, "set", p)
		ok(t, err)
		return c
	}
	at40, at45, at47, at50 := at(40), at(45), at(47), at(50)
	put := func(v []byte) { ok(t, l.db.Set(key, v, pebble.Sync)) }
	bad := func(after feed.Cursor, says string) {
		t.Helper()
		_, err := l.Since(ctx, "set", after, 0)
		names(t, err, `"set"`, says)
	}
	good50 := func(after feed.Cursor) {
		t.Helper()
		if b, err := l.Since(ctx, "set", after, 50); err != nil || len(b.Entries) != 50 {
			t.Errorf("Since(%v) = %v, want 50 entries", after, err)
		}
	}
	for i := 8; i < len(good); i++ {
		flipped := bytes.Clone(good)
		flipped[i] ^= 1 << (i % 8)
		put(flipped)
		bad(at40, "position 50")
	}
	bad(at45, "position 50")
	_, err = l.At(ctx, "set", 47)
	names(t, err, `"set"`, "position 50")
	_, err = l.Seek(ctx, "set", at47.Micros)
	names(t, err, `"set"`, "position 50")
	// The entries before and after the block can be read.
	_, err = l.Since(ctx, "set", feed.Cursor{}, 40)
	ok(t, err)
	good50(at50)
	for n := range 12 { // truncated
		put(good[:n])
		bad(at40, "position 50")
	}
	// An intact block whose datetime does not increase.
	put(append([]byte{0, 0, 0, 0, 0, 0, 0, 1}, good[8:]...))
	bad(feed.Cursor{}, "position 41")
	// A missing block.
	ok(t, l.db.Delete(key, pebble.Sync))
	bad(feed.Cursor{}, "41")
	bad(at40, "41")
	_, err = l.At(ctx, "set", 45)
	names(t, err, `"set"`, "45")
	// A missing block at the end.
	ok(t, l.db.Delete(logKey("set", 100), pebble.Sync))
	bad(at(90), "91 to 100")
	put(good)
	good50(at40)
}

// TestFailedWrite checks that a failed write ends the process, and that nothing is acknowledged
// afterwards.
func TestFailedWrite(t *testing.T) {
	t.Parallel()
	is := func(op errorfs.Op, suffix string, kinds ...errorfs.OpKind) bool {
		for _, k := range kinds {
			if op.Kind == k && (strings.HasSuffix(op.Path, suffix) || strings.HasPrefix(filepath.Base(op.Path), suffix)) {
				return true
			}
		}
		return false
	}
	for name, fails := range map[string]func(errorfs.Op) bool{
		"write-ahead log, write": func(op errorfs.Op) bool { return is(op, ".log", errorfs.OpFileWrite) },
		"write-ahead log, sync": func(op errorfs.Op) bool {
			return is(op, ".log", errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo)
		},
		"write-ahead log, create": func(op errorfs.Op) bool { return is(op, ".log", errorfs.OpCreate, errorfs.OpReuseForWrite) },
		"manifest, write":         func(op errorfs.Op) bool { return is(op, "MANIFEST", errorfs.OpFileWrite) },
		"manifest, sync": func(op errorfs.Op) bool {
			return is(op, "MANIFEST", errorfs.OpFileSync, errorfs.OpFileSyncData)
		},
	} {
		t.Run(name, func(t *testing.T) {
			base := vfs.NewCrashableMem()
			var broken atomic.Bool
			fs := errorfs.Wrap(base, errorfs.InjectorFunc(func(op errorfs.Op) error {
				if broken.Load() && fails(op) {
					return errors.New("input/output error")
				}
				return nil
			}))
			ended := make(chan string, 100)
			l := filled(t, "data", Options{FS: fs, tune: small, Fatal: func(msg string, err error) {
				ended <- fmt.Sprint(msg, ": ", err)
				select {} // like the end of the process: no caller gets an answer
			}})
			var acked atomic.Uint64
			broken.Store(true)
			for p := range 4 {
				go func() { // stops with the test process
					for i := 0; ; i++ {
						a, err := l.Append(context.Background(), "set", changelog.Publish{Changes: changes(fmt.Sprint(p, i), 20)})
						if err != nil {
							return
						}
						for old := acked.Load(); old < a[0].Cursor.Position; old = acked.Load() {
							acked.CompareAndSwap(old, a[0].Cursor.Position)
						}
					}
				}()
			}
			msg := <-ended
			if !strings.Contains(msg, "data") || !strings.Contains(msg, "input/output error") {
				t.Errorf("got last message %q", msg)
			}
			if err := l.Check(t.Context()); err == nil {
				t.Error("got success after a failed write")
			}
			again := start(t, "data", Options{FS: base.CrashClone(vfs.CrashCloneCfg{})})
			defer stop(t, again)
			have := uint64(len(entries(t, again, "set")))
			if n := acked.Load(); have < n { // includes later acknowledgments
				t.Errorf("got %d entries after %d were acknowledged", have, n)
			}
		})
	}
}

// TestFatalReturns has a Fatal that returns. Even then nothing may be acknowledged.
func TestFatalReturns(t *testing.T) {
	var broken atomic.Bool
	fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if broken.Load() && strings.HasSuffix(op.Path, ".log") && op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			return errors.New("input/output error")
		}
		return nil
	}))
	l := filled(t, "data", Options{FS: fs, Fatal: func(string, error) {}})
	broken.Store(true)
	s := state(t, l, "set")
	_, err := l.Append(t.Context(), "set", changelog.Publish{Changes: changes("x", 1)})
	wantErr(t, feed.ErrUnknown, err)
	_, err = l.Append(t.Context(), "set", changelog.Publish{Changes: changes("y", 1)})
	if !errors.Is(err, feed.ErrUnavailable) || errors.Is(err, feed.ErrUnknown) {
		t.Errorf("error = %v, want %v without an attempt", err, feed.ErrUnavailable)
	}
	if now := state(t, l, "set"); now != s {
		t.Errorf("state = %+v, want %+v", now, s)
	}
}

// TestFullDisk checks that a full disk refuses everything that grows, and accepts everything else:
// records, keys that do not grow a bucket, and the removal of pages and entries.
func TestFullDisk(t *testing.T) {
	ctx := t.Context()
	fs := vfs.NewMem()
	l := filled(t, "data", Options{FS: fs})
	defer stop(t, l)
	k, pages := l.Bucket("some"), l.Inventories()
	begin := setRecord(t, pages, 7, "", inventory.Update{}).Log.Begin
	ok(t, pages.Put(ctx, "set", begin, 7, somePages(1, 70)))
	kept := changelog.Publish{Changes: changes("kept", 1), Key: "key"}
	first, err := l.Append(ctx, "set", kept)
	ok(t, err)
	before := state(t, l, "set")
	fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 64<<20 - 1, TotalBytes: 1 << 40})
	_, err = l.Append(ctx, "set", changelog.Publish{Changes: changes("x", 1)})
	wantErr(t, feed.ErrFull, err)
	a, err := l.Append(ctx, "set", kept)
	if err != nil || !a[0].Replayed || a[0].Cursor != first[0].Cursor {
		t.Errorf("Append() of a retry = %v, %v, want the cursor of the first one, replayed", a, err)
	}
	wantErr(t, feed.ErrFull, l.Check(ctx))
	wantErr(t, feed.ErrFull, l.Make(ctx, "other", feed.Description{}, 10))
	if s := state(t, l, "set"); s != before {
		t.Errorf("state = %+v, want %+v", s, before)
	}
	if n := len(entries(t, l, "set")); n != 101 {
		t.Errorf("got %d entries", n)
	}
	for _, grows := range []bool{true, false} {
		err := k.Apply(ctx, map[string][]byte{"a": []byte("1")}, grows)
		v, getErr := k.Get(ctx, "a")
		if getErr != nil || errors.Is(err, feed.ErrFull) != grows || (v == nil) != grows {
			t.Errorf("Apply(grows %t) = %v; Get() = %q, %v, want ErrFull and no value only if it grows", grows, err, v, getErr)
		}
	}
	wantErr(t, feed.ErrFull, pages.Put(ctx, "set", begin, 7, somePages(71, 140)))
	setRecord(t, pages, 8, "x", inventory.Update{Durable: true})
	ok(t, pages.Remove(ctx, "set", begin, 8, []uint64{3, 64, 999}))
	if n := len(checkPages(t, pages, begin)); n != 68 {
		t.Errorf("got %d pages", n)
	}
	if n, err := l.Trim(ctx, "set", changelog.Retention{Count: 50}); err != nil || n != 50 {
		t.Errorf("Trim() = %d, %v, want 50, nil", n, err) // this frees space
	}
	fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 64 << 20, TotalBytes: 1 << 40})
	ok(t, l.Check(ctx))
	if a := add(t, l, "set", "x", 1); a.After != before.Head {
		t.Errorf("Append() = %+v, want it to follow the head", a)
	}
}

// wantWords fails the test unless err has all the words.
func wantWords(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("error = nil, want one with %q", words)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error = %q, want %q in it", err, w)
		}
	}
}

func TestInUse(t *testing.T) {
	if dir := os.Getenv("DISKLOG_TEST_IN_USE"); dir != "" { // this is the other process
		_, err := Open(t.Context(), dir, Options{})
		fmt.Println(err)
		os.Exit(0)
	}
	t.Parallel()
	dir := t.TempDir()
	l := filled(t, dir, Options{})
	_, err := Open(t.Context(), dir, Options{})
	wantWords(t, err, dir, "in use")
	cmd := exec.Command(os.Args[0], "-test.run=^TestInUse$")
	cmd.Env = append(os.Environ(), "DISKLOG_TEST_IN_USE="+dir)
	out, err := cmd.CombinedOutput()
	ok(t, err)
	wantWords(t, errors.New(string(out)), dir, "in use by another process")
	if n := len(entries(t, l, "set")); n != 100 {
		t.Errorf("got %d entries", n)
	}
	stop(t, l)
	l = start(t, dir, Options{})
	stop(t, l)
}

func TestOpenErrors(t *testing.T) {
	t.Run("file instead of directory", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "data")
		ok(t, os.WriteFile(path, nil, 0o644))
		_, err := Open(t.Context(), path, Options{})
		wantWords(t, err, path, "create the directory")
		_, err = Open(t.Context(), filepath.Join(path, "below"), Options{})
		wantWords(t, err, path, "create the directory")
	})
	t.Run("read-only", func(t *testing.T) {
		fs := vfs.NewMem()
		stop(t, filled(t, "data", Options{FS: fs}))
		ro := errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && op.Kind != errorfs.OpMkdirAll && op.Kind != errorfs.OpFileClose {
				return &os.PathError{Op: "open", Path: op.Path, Err: syscall.EROFS}
			}
			return nil
		}))
		_, err := Open(t.Context(), "data", Options{FS: ro})
		wantWords(t, err, "data", "lock the change memory", "read-only")
	})
	t.Run("newer format", func(t *testing.T) {
		fs := vfs.NewMem()
		l := filled(t, "data", Options{FS: fs})
		ok(t, l.db.Set(formatKey, []byte("2"), pebble.Sync))
		stop(t, l)
		for range 2 { // a failed call must leave nothing locked
			_, err := Open(t.Context(), "data", Options{FS: fs})
			wantWords(t, err, "data", `format "2"`, "newer")
		}
	})
	t.Run("store of another program", func(t *testing.T) {
		fs := vfs.NewMem()
		db, err := pebble.Open("data", &pebble.Options{FS: fs, Logger: pebbleLogger{&Log{opts: Options{}.withDefaults()}}})
		ok(t, err)
		ok(t, errors.Join(db.Set([]byte("a"), []byte("b"), pebble.Sync), db.Close()))
		_, err = Open(t.Context(), "data", Options{FS: fs})
		wantWords(t, err, "data", "another program")
	})
	t.Run("no tip", func(t *testing.T) {
		fs := vfs.NewMem()
		l := filled(t, "data", Options{FS: fs})
		ok(t, l.db.Delete(tipKey("set"), pebble.Sync))
		stop(t, l)
		_, err := Open(t.Context(), "data", Options{FS: fs})
		names(t, err, "data", `"set"`)
	})
}

// TestDefaultFatal checks that the process ends with one line.
func TestDefaultFatal(t *testing.T) {
	if os.Getenv("DISKLOG_TEST_FATAL") != "" {
		Options{}.withDefaults().Fatal("a write failed", io.ErrShortWrite)
	}
	t.Parallel()
	cmd := exec.Command(os.Args[0], "-test.run=^TestDefaultFatal$")
	cmd.Env = append(os.Environ(), "DISKLOG_TEST_FATAL=1")
	out, err := cmd.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 1 {
		t.Errorf("process ended with %v, want status 1", err)
	}
	if got, want := string(out), "rshub: a write failed: short write\n"; got != want {
		t.Errorf("output = %q, want %q", got, want)
	}
}
