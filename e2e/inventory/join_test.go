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

// What a destination is told: its hub, its set, the directory of its pages, and after how
// many updates it kills itself; 0: never.
const (
	ofHub       = "RSHUB_E2E_HUB"
	ofSet       = "RSHUB_E2E_SET"
	inDirectory = "RSHUB_E2E_DIRECTORY"
	dieAfter    = "RSHUB_E2E_DIE"
)

// beDestination is the main function of a destination: a replica with its pages on the
// disk, which follows until SIGTERM, or kills itself.
func beDestination() error {
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
	c, err := client.New(os.Getenv(ofHub), client.Options{Sleep: soon})
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

// A destination joins a set by a baseline, and is killed and goes on.
type destination struct {
	set, dir string
	hubs     []*hubtest.Hub
	process  *hubtest.Process // nil: it does not run
	lives    int
}

// step does something at random to a destination: it joins, goes on, or is killed.
func (d *destination) step(t *testing.T, r *rand.Rand) {
	t.Helper()
	switch {
	case d.process != nil && d.process.Exited():
		if code := d.process.Wait(); code != -1 {
			t.Fatalf("the destination ends with %d: %s", code, d.process.Stderr)
		}
		d.process = nil
	case d.process != nil && r.IntN(3) == 0:
		d.process.Kill()
	case d.process == nil && r.IntN(2) == 0:
		d.lives++
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		env := []string{ofHub + "=" + d.hubs[r.IntN(len(d.hubs))].URL, ofSet + "=" + d.set, inDirectory + "=" + d.dir, fmt.Sprint(dieAfter, "=", r.IntN(12))}
		d.process = hubtest.Start(t, env, nil, self)
	}
}

// inSync ends the destination, brings it up to date, and proves that it holds what each of
// the hubs does.
func (d *destination) inSync(t *testing.T, s *source) {
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
	if at, whole := r.Cursor(); !whole || at != s.newest() {
		t.Errorf("the destination is at %s, whole: %v, and the set at %s", at, whole, s.newest())
	}
	for _, h := range d.hubs {
		r := open(t, newClient(t, h), d.set, store)
		for _, by := range []client.Comparison{client.ByPosition, client.ByContent} {
			names(t, "the destination", r.Audit(t.Context(), client.AuditOptions{By: by}), map[string]client.DifferenceKind{})
		}
	}
	t.Logf("the destination was in sync after %d lives", d.lives)
}

// TestDestinations publishes a whole history while destinations join by a baseline at any
// moment, are killed, and go on. In the end each holds what all changes leave, and proves it.
func TestDestinations(t *testing.T) {
	t.Run("a hub on disk", func(t *testing.T) {
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
	s.publish(t, hubs[0], resources(steady, 5_000)) // nothing touches them: so baselines are long
	s.complete(t, hubs[0])
	var all []*destination
	for range 3 {
		all = append(all, &destination{set: s.set, dir: t.TempDir(), hubs: hubs})
	}
	done := s.run(t, r.Uint64(), 1<<30, hubs)
	for range 80 {
		s.goesOn(t, uint64(r.IntN(300)))
		for _, d := range all {
			d.step(t, r)
		}
	}
	s.end()
	<-done
	for _, h := range hubs {
		s.completely(t, h)
	}
	for _, d := range all {
		d.inSync(t, s.source)
	}
}
