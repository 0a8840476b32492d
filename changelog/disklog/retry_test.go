package disklog

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/testutil"
)

// TestRetryDelay checks that the store retries the creation of files with delays, and logs it once
// a minute. When files can be created again, it continues, and nothing is lost.
func TestRetryDelay(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, only string
		err        error
		waits      bool // publishes wait during the failure
		most       int64
	}{
		{"no free file descriptors", "", syscall.EMFILE, true, 2000},
		{"no free file descriptors for tables", ".sst", syscall.EMFILE, false, 1000},
		{"full disk", ".sst", syscall.ENOSPC, false, 30},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var fails atomic.Bool
				var tries atomic.Int64
				files, lines := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
					makes := op.Kind == errorfs.OpCreate || op.Kind == errorfs.OpReuseForWrite || op.Kind == errorfs.OpOpen
					if !fails.Load() || !makes || !strings.HasSuffix(op.Path, test.only) {
						return nil
					}
					tries.Add(1)
					return fmt.Errorf("open a file: %w", test.err)
				})), &testutil.Log{}
				l := start(t, "data", Options{FS: files, Logger: lines.Logger(slog.LevelInfo), tune: func(o *pebble.Options) {
					o.MemTableSize, o.MemTableStopWritesThreshold = 256<<10, 1000
				}})
				ok(t, l.Make(t.Context(), "set", feed.Description{}, 1000))
				fails.Store(true)
				var publishing sync.WaitGroup
				var added atomic.Int64
				publishing.Go(func() {
					for i := range 40 { // more than two memtables
						c := changes(fmt.Sprint(i), 1)
						c[0].Hash = strings.Repeat("x", 32<<10)
						if _, err := l.Append(t.Context(), "set", changelog.Publish{Changes: c}); err != nil {
							t.Error(err)
							return
						}
						added.Add(1)
					}
				})
				time.Sleep(30 * time.Second)
				if n := tries.Load(); n == 0 || n > test.most {
					t.Errorf("got %d attempts in 30 seconds", n)
				}
				if n := strings.Count(lines.String(), `"level":"ERROR"`); n != 1 {
					t.Errorf("got %d log lines:\n%s", n, lines)
				}
				if waits := added.Load() < 40; waits != test.waits {
					t.Errorf("got %d acknowledged publishes", added.Load())
				}
				fails.Store(false)
				publishing.Wait()
				time.Sleep(time.Minute)
				if m := l.db.Metrics(); m.Flush.Count == 0 {
					t.Error("no table was flushed")
				}
				if s := state(t, l, "set"); s.Head.Position != 40 {
					t.Errorf("state = %v, want the head at position 40", s)
				}
				stop(t, l)
			})
		})
	}
}

// TestOpenRetryingOnlyForDescriptors checks that other errors are not retried.
func TestOpenRetryingOnlyForDescriptors(t *testing.T) {
	calls := 0
	_, err := openRetrying(&retrier{logger: slog.New(slog.DiscardHandler)}, func() (vfs.File, error) {
		calls++
		return nil, syscall.ENOENT
	})
	if calls != 1 || !errors.Is(err, syscall.ENOENT) {
		t.Errorf("openRetrying() called open %d times: %v, want one call and ENOENT", calls, err)
	}
}
