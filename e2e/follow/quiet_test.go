package follow

import (
	"fmt"
	"testing"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// TestQuietFollower sends nothing to its followers for longer than the write timeout. A stale
// deadline of the last write would disconnect them.
func TestQuietFollower(t *testing.T) {
	t.Parallel()
	const writeTimeout = 100 * time.Millisecond
	h := hubtest.StartHub(t, "RSHUB_WRITE_TIMEOUT="+writeTimeout.String())
	for _, backlog := range []int{0, 3} { // number of earlier changes
		set := fmt.Sprint("quiet", backlog)
		if backlog > 0 {
			hubtest.Publish(t, h, set, hubtest.Changes("before", backlog))
		}
		var followers []*hubtest.Follower
		for _, way := range hubtest.AllTransports {
			f := hubtest.Follow(t, h, way, set, "start")
			f.WaitStart(t)
			f.WaitEntries(t, backlog)
			followers = append(followers, f)
		}
		for i := range 2 {
			start := time.Now()
			hubtest.Until(t, "the hub was quiet for long enough", func() error {
				if quiet := time.Since(start); quiet < 3*writeTimeout {
					return fmt.Errorf("got %v", quiet)
				}
				return nil
			})
			hubtest.Publish(t, h, set, hubtest.Change(fmt.Sprint("after", i)))
			for _, f := range followers {
				f.WaitEntries(t, backlog+i+1)
			}
		}
		for _, f := range followers {
			f.Mu.Lock()
			if len(f.Errs) > 0 {
				t.Errorf("errors of the %s of %s = %q, want none", f.Transport, set, f.Errs)
			}
			f.Mu.Unlock()
		}
	}
}
