package inventory

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"testing"

	"github.com/rshub/rshub/client"
	"github.com/rshub/rshub/client/disk"
	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// Environment variables of a destination: its hub, its set, the directory of its pages, and the
// number of updates after which it kills itself; 0 means never.
const (
	ofHub       = "RSHUB_E2E_HUB"
	ofSet       = "RSHUB_E2E_SET"
	inDirectory = "RSHUB_E2E_DIRECTORY"
	dieAfter    = "RSHUB_E2E_DIE"
)

// runDestination is the main function of a destination: a replica with its pages on disk, which
// follows until SIGTERM, or kills itself.
func runDestination() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	left, err := strconv.Atoi(os.Getenv(dieAfter))
	if err != nil {
		return err
	}
	store, err := disk.Open(os.Getenv(inDirectory), disk.Options{})
	if err != nil {
		return err
	}
	defer store.Close()
	c, err := client.New(os.Getenv(ofHub), client.Options{Sleep: shortSleep})
	if err != nil {
		return err
	}
	r, err := c.OpenReplica(ctx, os.Getenv(ofSet), client.ReplicaOptions{Store: store})
	if err != nil {
		return err
	}
	for _, err := range r.Follow(ctx) {
		if err != nil {
			return err
		}
		if left--; left == 0 {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	return nil
}

// A destination joins a set with a baseline, and is killed and restarted.
type destination struct {
	set, dir string
	hubs     []*hubtest.Hub
	process  *hubtest.Process // nil if it is not running
	starts   int
}

// step starts, restarts or kills a destination at random.
func (d *destination) step(t *testing.T, r *rand.Rand) {
	t.Helper()
	switch {
	case d.process != nil && d.process.Exited():
		if code := d.process.Wait(); code != -1 {
			t.Fatalf("exit status of the destination = %d, want -1: %s", code, d.process.Stderr)
		}
		d.process = nil
	case d.process != nil && r.IntN(3) == 0:
		d.process.Kill()
	case d.process == nil && r.IntN(2) == 0:
		d.starts++
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		env := []string{ofHub + "=" + d.hubs[r.IntN(len(d.hubs))].URL, ofSet + "=" + d.set, inDirectory + "=" + d.dir, fmt.Sprint(dieAfter, "=", r.IntN(12))}
		d.process = hubtest.Start(t, env, nil, self)
	}
}

// wantInSync stops the destination, lets it catch up, and audits it against each hub.
func (d *destination) wantInSync(t *testing.T, s *source) {
	t.Helper()
	if d.process != nil {
		d.process.Kill()
	}
	store, err := disk.Open(d.dir, disk.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	r := open(t, newClient(t, d.hubs[0]), d.set, store)
	if err := catchUp(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if at, complete := r.Cursor(); !complete || at != s.newest() {
		t.Errorf("cursor of the destination = %s, complete %v, want %s", at, complete, s.newest())
	}
	for _, h := range d.hubs {
		r := open(t, newClient(t, h), d.set, store)
		for _, by := range []client.Comparison{client.ByPosition, client.ByContent} {
			wantDifferences(t, "the destination", r.Audit(t.Context(), client.AuditOptions{By: by}), map[string]client.DifferenceKind{})
		}
	}
	t.Logf("the destination was in sync after %d starts", d.starts)
}

// TestDestinations publishes a history while destinations join with a baseline at any time, are
// killed and restarted. In the end each has the state after all changes, as its audits confirm.
func TestDestinations(t *testing.T) {
	t.Run("hub on disk", func(t *testing.T) {
		t.Parallel()
		join(t, hubtest.StartHub(t))
	})
	t.Run("two hubs on Redis", func(t *testing.T) {
		t.Parallel()
		join(t, hubtest.StartCluster(t, 2).Hubs...)
	})
}

func join(t *testing.T, hubs ...*hubtest.Hub) {
	r := hubtest.Random(t)
	s := newStream("joined")
	s.publish(t, hubs[0], resources(steady, 5_000)) // unchanged later, so that baselines are long
	s.complete(t, hubs[0])
	var all []*destination
	for range 3 {
		all = append(all, &destination{set: s.set, dir: t.TempDir(), hubs: hubs})
	}
	done := s.run(t, r.Uint64(), 1<<30, hubs)
	for range 80 {
		s.waitPublished(t, uint64(r.IntN(300)))
		for _, d := range all {
			d.step(t, r)
		}
	}
	s.stop()
	<-done
	for _, h := range hubs {
		s.checkComplete(t, h)
	}
	for _, d := range all {
		d.wantInSync(t, s.source)
	}
}
