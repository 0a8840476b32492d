package disklog

import (
	"errors"
	"runtime"
	"sync"
	"testing"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
)

// TestRemovedWhileRead reads a log at the moment when entries are removed from the store and the
// removal is not durable yet. A reader must never see missing entries.
func TestRemovedWhileRead(t *testing.T) {
	ctx := t.Context()
	for name, test := range map[string]struct {
		remove func(*Log) error
		state  error
		floor  uint64
	}{
		"trim": {func(l *Log) error {
			_, err := l.Trim(ctx, "set", changelog.Retention{Count: 50})
			return err
		}, nil, 50},
		"delete": {func(l *Log) error { return l.Delete(ctx, "set") }, feed.ErrNoSet, 0},
	} {
		t.Run(name, func(t *testing.T) {
			fs, hold, release := newHeldDisk()
			l := filled(t, "data", Options{FS: fs})
			defer stop(t, l)
			first, err := l.At(ctx, "set", 1)
			ok(t, err)
			hold()
			var running sync.WaitGroup
			running.Go(func() {
				if err := test.remove(l); err != nil {
					t.Error(err)
				}
			})
			for v := []byte{1}; v != nil && err == nil; runtime.Gosched() {
				v, err = l.get(logKey("set", 10))
			}
			_, since := l.Since(ctx, "set", first, 0)
			s, state := l.State(ctx, "set")
			release()
			running.Wait()
			if err != nil || !errors.Is(since, feed.ErrGone) {
				t.Errorf("Since(removed cursor) = %v, %v; want %v", since, err, feed.ErrGone)
			}
			if !errors.Is(state, test.state) || s.Floor.Position != test.floor {
				t.Errorf("Floor = %v, %v; want %d, %v", s.Floor, state, test.floor, test.state)
			}
		})
	}
}
