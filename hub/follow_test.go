package hub

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rshub/rshub/feed"
)

// The warning that followers wait for the memory is logged once per minute, however many
// followers wait.
func TestWaitWarningIsRateLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged bytes.Buffer
		h, log := newHub(t, Options{Logger: slog.New(slog.NewTextHandler(&logged, nil))})
		mustPublish(t, h, "demo", changes("a", 3))
		log.onSince = func() error { return feed.ErrUnavailable }
		var followers []*testFollower
		for range 50 {
			followers = append(followers, startFollower(t, h, "demo", feed.Cursor{}))
		}
		time.Sleep(150 * time.Second)
		closeReaders(t, followers...)
		if n := strings.Count(logged.String(), "waiting for the memory"); n != 3 {
			t.Errorf("logged %d times, want 3", n)
		}
	})
}
