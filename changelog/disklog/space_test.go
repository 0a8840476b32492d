package disklog

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/rshub/rshub/feed"
)

// crashed returns the files of a memory that needs recovery.
func crashed(t *testing.T) *vfs.MemFS {
	t.Helper()
	fs := vfs.NewCrashableMem()
	l := filled(t, "data", Options{FS: fs})
	defer stop(t, l)
	return fs.CrashClone(vfs.CrashCloneCfg{})
}

// failing returns a file system on which some operations fail.
func failing(files vfs.FS, err error, fails func(op errorfs.Op) bool) vfs.FS {
	return errorfs.Wrap(files, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if fails(op) {
			return err
		}
		return nil
	}))
}

// writes reports whether an operation needs disk space.
func writes(op errorfs.Op) bool {
	return op.Kind == errorfs.OpCreate || op.Kind == errorfs.OpFileWrite
}

// TestOpenOnFullDisk checks that a memory that cannot recover because the disk is full reports
// that, and is complete once there is space.
func TestOpenOnFullDisk(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		full func(fs *vfs.MemFS) vfs.FS
		want []string
	}{
		{"before recovery", func(fs *vfs.MemFS) vfs.FS {
			fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 2 << 20, TotalBytes: 1 << 40})
			return fs
		}, []string{"data", "2 MiB free", "free some space"}},
		{"during recovery", func(fs *vfs.MemFS) vfs.FS {
			return failing(fs, syscall.ENOSPC, func(op errorfs.Op) bool { return writes(op) && strings.HasSuffix(op.Path, ".sst") })
		}, []string{"data", "replay", "no space left"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fs := crashed(t)
			again := fs.CrashClone(vfs.CrashCloneCfg{})
			_, err := Open(t.Context(), "data", Options{FS: tt.full(fs)})
			if err == nil {
				t.Fatal("Open succeeded on a full disk")
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("Open: got %q, want %q in it", err, want)
				}
			}
			l := start(t, "data", Options{FS: again})
			defer stop(t, l)
			if n := len(entries(t, l, "set")); n != 100 {
				t.Errorf("got %d entries, want 100", n)
			}
		})
	}
}

// TestOpenCanceled checks that Open returns when its context is done, no matter what it waits for.
func TestOpenCanceled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		defer close(release)
		fs := errorfs.Wrap(crashed(t), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpCreate && strings.HasSuffix(op.Path, ".sst") {
				<-release
			}
			return nil
		}))
		ctx, cancel := context.WithCancelCause(t.Context())
		stopped := errors.New("stopped")
		time.AfterFunc(time.Minute, func() { cancel(stopped) })
		if _, err := Open(ctx, "data", Options{FS: fs}); !errors.Is(err, stopped) {
			t.Errorf("Open: got %v, want %v", err, stopped)
		}
	})
}

// TestOpenAfterCanceled checks that the directory can be opened again after a canceled Open.
func TestOpenAfterCanceled(t *testing.T) {
	t.Parallel()
	fs := crashed(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Open(ctx, "data", Options{FS: fs}); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("Open: got %v, want %v", err, context.Canceled)
	} else if err == nil {
		t.Error("Open succeeded with a canceled context")
	}
	stop(t, start(t, "data", Options{FS: fs}))
}

// TestCheckpointFailure checks that a failed copy leaves the memory unchanged and usable.
func TestCheckpointFailure(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		fails func(op errorfs.Op) bool
		err   error
	}{
		{"write-ahead log", func(op errorfs.Op) bool { return writes(op) && strings.HasSuffix(op.Path, ".log") }, syscall.ENOSPC},
		{"manifest", func(op errorfs.Op) bool { return writes(op) && strings.HasPrefix(filepath.Base(op.Path), "MANIFEST") }, syscall.ENOSPC},
		{"sync of the directory", func(op errorfs.Op) bool { return op.Kind == errorfs.OpFileSync && op.Path == "copy" }, syscall.EIO},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fs := failing(vfs.NewMem(), tt.err, func(op errorfs.Op) bool { return strings.HasPrefix(op.Path, "copy") && tt.fails(op) })
			l := filled(t, "data", Options{FS: fs}) // its Fatal fails the test
			defer stop(t, l)
			if err := l.Checkpoint("copy"); !errors.Is(err, tt.err) {
				t.Errorf("Checkpoint: got %v, want %v", err, tt.err)
			}
			add(t, l, "set", "y", 10)
		})
	}
}

// TestCheckpointNeedsSpace checks that a copy is refused before anything is written if it would use
// the space that the memory needs.
func TestCheckpointNeedsSpace(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	l := filled(t, "data", Options{FS: fs})
	defer stop(t, l)
	fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 64<<20 + 100, TotalBytes: 1 << 40})
	if err := l.Checkpoint("copy"); !errors.Is(err, feed.ErrFull) {
		t.Errorf("Checkpoint: got %v, want %v", err, feed.ErrFull)
	}
	if _, err := fs.Stat("copy"); err == nil {
		t.Error("got a partial copy, want none")
	}
	fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 128 << 20, TotalBytes: 1 << 40})
	ok(t, l.Checkpoint("copy"))
}

// TestCheckpointWhileFilesDisappear checks that it is not an error if Pebble removes a file while
// the needed space is computed.
func TestCheckpointWhileFilesDisappear(t *testing.T) {
	t.Parallel()
	fs := failing(vfs.NewMem(), os.ErrNotExist, func(op errorfs.Op) bool {
		return op.Kind == errorfs.OpStat && strings.HasSuffix(op.Path, ".log")
	})
	l := filled(t, "data", Options{FS: fs})
	defer stop(t, l)
	ok(t, l.Checkpoint("copy"))
}
