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

// However many followers wait for the memory, the log says so once a minute.
func TestManyWaitForTheMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged bytes.Buffer
		h, log := newHub(t, Options{Logger: slog.New(slog.NewTextHandler(&logged, nil))})
		mustPublish(t, h, "demo", changes("a", 3))
		log.onSince = func() error { return feed.ErrUnavailable }
		var followers []*reader
		for range 50 {
			followers = append(followers, follow(t, h, "demo", feed.Cursor{}))
		}
		time.Sleep(150 * time.Second)
		leaves(t, followers...)
		if n := strings.Count(logged.String(), "waiting for the memory"); n != 3 {
			t.Errorf("it is logged %d times", n)
		}
	})
}
