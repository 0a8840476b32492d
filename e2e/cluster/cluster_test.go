package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// TestCluster publishes to all hubs at once, follows at all, takes NATS away and
// kills a hub: what was acknowledged is in the memory once, and all followers at
// all hubs see it in one order.
func TestCluster(t *testing.T) {
	t.Parallel()
	const set = "shared.set"
	c := hubtest.StartCluster(t, 3, "RSHUB_CHANGELIST_SIZE=500")
	var followers []*hubtest.Follower
	for _, h := range c.Hubs {
		for _, way := range []string{hubtest.ByWebSocket, hubtest.ByEvents} {
			followers = append(followers, hubtest.Follow(t, h, way, set, "start"))
		}
	}
	var publishers []*hubtest.Publisher
	for i, h := range c.Hubs {
		publishers = append(publishers, hubtest.Publishing(t, h, set, "hub"+strconv.Itoa(i), true))
	}
	hubtest.GoesOn(t, 20, publishers...)

	c.NATS.Stop()
	hubtest.Until(t, "the hubs say that NATS is away", func() error {
		if v := hubtest.Ready(t, c.Hubs[0]); !v.Degraded() {
			return fmt.Errorf("%+v", v)
		}
		return nil
	})
	hubtest.GoesOn(t, 20, publishers...)
	there := followers[0].Count()
	hubtest.Until(t, "followers of other hubs go on without NATS", func() error {
		for _, f := range followers {
			if f.Count() < there+20 {
				return errors.New(f.Way)
			}
		}
		return nil
	})
	c.NATS.Start(t)
	hubtest.Until(t, "NATS is back", func() error {
		if v := hubtest.Ready(t, c.Hubs[0]); !v.Checks["nats"].OK {
			return fmt.Errorf("%+v", v)
		}
		return nil
	})
	hubtest.GoesOn(t, 20, publishers...)

	c.Hubs[2].Kill()
	hubtest.GoesOn(t, 20, publishers[:2]...)
	c.Hubs[2].Start(t)
	hubtest.GoesOn(t, 20, publishers...)
	for _, p := range publishers {
		p.Finish()
	}

	all := hubtest.Memory(t, c.Hubs[0], set)
	for _, p := range publishers {
		p.Check(t, all)
	}
	for i, f := range followers {
		hubtest.Same(t, "the "+f.Way+" "+strconv.Itoa(i), f.Has(t, len(all)), all)
		if f.Diverged > 0 {
			t.Errorf("the %s %d was told that the memory diverged", f.Way, i)
		}
	}
	hubtest.Same(t, "the walk over all Change Lists", hubtest.Walk(t, c.Hubs[0], set), all)
}

// TestRedisKilled kills Redis under load, and starts it again from its
// append-only file.
func TestRedisKilled(t *testing.T) {
	t.Parallel()
	const set = "killed-below"
	c := hubtest.StartCluster(t, 2)
	var followers []*hubtest.Follower
	var publishers []*hubtest.Publisher
	for i, h := range c.Hubs {
		followers = append(followers, hubtest.Follow(t, h, hubtest.ByWebSocket, set, "start"))
		publishers = append(publishers, hubtest.Publishing(t, h, set, "hub"+strconv.Itoa(i), true))
	}
	for range 3 {
		hubtest.GoesOn(t, 20, publishers...)
		c.Redis.Kill()
		hubtest.Until(t, "the hub says that Redis is away", func() error {
			a, err := hubtest.Request(http.MethodGet, c.Hubs[0].Ops+"/readyz", nil)
			if err == nil && a.Status != http.StatusServiceUnavailable {
				err = errors.New(string(a.Body))
			}
			return err
		})
		c.Redis.Start(t)
	}
	hubtest.GoesOn(t, 20, publishers...)
	for _, p := range publishers {
		p.Finish()
	}
	all := hubtest.Memory(t, c.Hubs[0], set)
	for _, p := range publishers {
		p.Check(t, all)
	}
	for i, f := range followers {
		hubtest.Same(t, "the follower of hub "+strconv.Itoa(i), f.Has(t, len(all)), all)
		if f.Diverged > 0 {
			t.Errorf("follower %d was told that the memory diverged", i)
		}
	}
}

// TestClusterDocuments compares what the hubs of a cluster serve, byte for byte.
func TestClusterDocuments(t *testing.T) {
	t.Parallel()
	const set = "alike"
	c := hubtest.StartCluster(t, 2, "RSHUB_CHANGELIST_SIZE=100")
	hubtest.Publish(t, c.Hubs[0], set, hubtest.Changes("a", 150), "Idempotency-Key: one")
	if r := hubtest.Publish(t, c.Hubs[1], set, hubtest.Changes("a", 150), "Idempotency-Key: one"); !r.Replayed {
		t.Errorf("the same key at another hub: %+v", r)
	}
	hubtest.Publish(t, c.Hubs[1], set, hubtest.Changes("b", 200))
	paths := []string{"/.well-known/resourcesync", "/sets/" + set + "/changes"}
	for _, name := range []string{"capabilitylist.xml", "changelist.xml", "changelist-index.xml", ".well-known/resourcesync"} {
		paths = append(paths, "/sets/"+set+"/"+name)
	}
	for _, it := range hubtest.Document(t, c.Hubs[0].URL+"/sets/"+set+"/changelist-index.xml").Items {
		u, err := url.Parse(it.Loc)
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, u.Path)
	}
	if len(paths) != 6+4 {
		t.Errorf("there are %d documents: %q", len(paths), paths)
	}
	for _, path := range paths {
		a := hubtest.Must(t, http.StatusOK, http.MethodGet, c.Hubs[0].URL+path, nil)
		b := hubtest.Must(t, http.StatusOK, http.MethodGet, c.Hubs[1].URL+path, nil)
		if !bytes.Equal(a.Body, b.Body) || a.Header.Get("ETag") != b.Header.Get("ETag") || a.Header.Get("ETag") == "" {
			t.Errorf("%s differs between hubs:\n%s %s\n%s %s", path, a.Header.Get("ETag"), a.Body, b.Header.Get("ETag"), b.Body)
		}
	}
}

// TestClusterDelete deletes a set at one hub while it is followed at another.
func TestClusterDelete(t *testing.T) {
	t.Parallel()
	const set = "shortlived"
	c := hubtest.StartCluster(t, 2)
	hubtest.Publish(t, c.Hubs[0], set, hubtest.Changes("a", 3))
	f := hubtest.Follow(t, c.Hubs[1], hubtest.ByWebSocket, set, "start")
	f.Has(t, 3)
	hubtest.Must(t, http.StatusNoContent, http.MethodDelete, c.Hubs[0].URL+"/sets/"+set, nil)
	f.Ended(t, "4410")
}
