package follow

import (
	"fmt"
	"testing"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// TestQuietFollower has nothing to tell its followers for longer than a write
// may take. A deadline that stayed behind from the last write would end them.
func TestQuietFollower(t *testing.T) {
	t.Parallel()
	const writeTimeout = 100 * time.Millisecond
	h := hubtest.StartHub(t, "RSHUB_WRITE_TIMEOUT="+writeTimeout.String())
	for _, backlog := range []int{0, 3} { // whether there is something to catch up with
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
			begun := time.Now()
			hubtest.Until(t, "it has been quiet for long", func() error {
				if quiet := time.Since(begun); quiet < 3*writeTimeout {
					return fmt.Errorf("only for %v", quiet)
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
				t.Errorf("the %s of %s was disturbed: %q", f.Transport, set, f.Errs)
			}
			f.Mu.Unlock()
		}
	}
}
