package redislog

import (
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/changelog/logtest"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/redisconn"
	"github.com/rshub/rshub/internal/testutil"
)

// storeClock replaces the clock of Redis with the hub's, which a test can set.
func storeClock(script string) string {
	return strings.Replace(script, "redis.call('TIME')", "{ 0, ARGV[2] }", 1)
}

func backend(url string, fake bool) logtest.Backend {
	return logtest.Backend{FakeClock: fake, New: func(t *testing.T, o logtest.Options) func() (changelog.Log, error) {
		opts := Options{Prefix: prefix(), ClockSkew: o.ClockSkew}
		if fake {
			opts.Now, opts.edit = o.Now, storeClock
		}
		return func() (changelog.Log, error) { return openAt(t, url, opts) }
	}}
}

func TestLog(t *testing.T) {
	t.Parallel()
	logtest.Run(t, backend(shared.url(), true))
}

// TestLogOnCluster runs the suite on a cluster, where a script that touches keys of two slots
// fails. The clock is Redis's, as in production.
func TestLogOnCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("repeats all of TestLog")
	}
	t.Parallel()
	url := newCluster(t)
	logtest.Run(t, backend(url, false))

	l := startOn(t, connect(t, url, redisconn.Options{Wait: 1, WaitTimeout: 10 * time.Millisecond}), Options{})
	err := l.Make(t.Context(), "set", feed.Description{}, 10)
	wantErr(t, feed.ErrUnknown, err)
	makeSet(t, start(t, url, Options{Prefix: l.opts.Prefix}), 10)
	_, err = l.Append(t.Context(), "set", changelog.Publish{Changes: changes("a", 3)})
	wantErr(t, feed.ErrUnknown, err)
	if n := len(all(t, l, feed.Cursor{})); n != 3 {
		t.Errorf("got %d entries", n)
	}
}

// newCluster starts a Cluster of one server, and returns its URL.
func newCluster(t *testing.T) string {
	t.Helper()
	s := newServer(t, "--cluster-enabled", "yes", "--cluster-require-full-coverage", "no")
	ok(t, s.admin(t).ClusterAddSlotsRange(t.Context(), 0, 16383).Err())
	testutil.Until(t, "the cluster is well", func() bool {
		return strings.Contains(s.admin(t).ClusterInfo(t.Context()).Val(), "cluster_state:ok")
	})
	return s.url() + "?cluster=true"
}
