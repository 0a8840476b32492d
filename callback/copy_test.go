package callback

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/internal/redistest"
)

// content is all that a registry holds, but for the numbers of requests.
func content(t *testing.T, r Registry) (records map[ID]Record, requests map[int][]Request) {
	t.Helper()
	records, requests = map[ID]Record{}, map[int][]Request{}
	for shard := range Shards {
		some, err := allRecords(t.Context(), r, shard)
		if err != nil {
			t.Fatal(err)
		}
		for _, record := range some {
			records[record.ID()] = record
		}
		waiting, err := allRequests(t.Context(), r, shard)
		if err != nil {
			t.Fatal(err)
		}
		for i := range waiting {
			waiting[i].Number = 0
		}
		if len(waiting) > 0 {
			requests[shard] = waiting
		}
	}
	return records, requests
}

// Subscriptions go from the disk to Redis and back, with all that is known of
// them, however often that was begun.
func TestCopy(t *testing.T) {
	long(t)
	const n = 700
	ctx := t.Context()
	f := newFront(t, ServerOptions{})
	for n := range n {
		r := record(n, changelog.Cursor{Position: uint64(n), Micros: 5})
		r.Failed, r.Next, r.Last = n%3, now, []Attempt{{At: now, Kind: "deliver", Status: 500, Error: "no success"}}
		f.put(r)
	}
	for i := range 300 {
		r := Request{Mode: Subscribe, Set: "demo", Callback: fmt.Sprint("https://new.example/", i%7), Secret: secret, Lease: time.Duration(i), At: now}
		if err := f.registry.Send(ctx, r); err != nil {
			t.Fatal(err)
		}
	}
	records, requests := content(t, f.registry)
	if len(records) != n || len(requests) == 0 {
		t.Fatalf("there are %d records, and requests in %d shards", len(records), len(requests))
	}
	same := func(what string, r Registry) {
		t.Helper()
		a, b := content(t, r)
		if !reflect.DeepEqual(a, records) || !reflect.DeepEqual(b, requests) {
			t.Errorf("%s has %d records, and requests in %d shards", what, len(a), len(b))
		}
	}

	s := redistest.Start(t)
	redis := func() *Redis { // each copy is a hub of its own
		r, err := NewRedis(s.Client(), "p", RedisOptions{ClaimFor: 500 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for _, shard := range []int{0, 1} { // what is no more, and the claim of who was killed
		r := redis()
		if err := r.Commit(ctx, claim(t, r, shard), Changes{Put: subscriptions(shard, 2)}); err != nil {
			t.Fatal(err)
		}
	}
	for stop := 1; ; stop += 60 {
		to := &stopping{Registry: redis()}
		to.left.Store(int64(stop))
		_, err := Copy(ctx, f.registry, to)
		if err == nil {
			break
		}
		if !errors.Is(err, errStopped) {
			t.Fatal(err)
		}
	}
	same("Redis", redis())
	if got, err := Copy(ctx, f.registry, redis()); err != nil || got != n {
		t.Errorf("%d are copied again, %v", got, err)
	}
	same("Redis, copied again,", redis())

	back := newFront(t, ServerOptions{})
	if got, err := Copy(ctx, redis(), back.registry); err != nil || got != n {
		t.Errorf("%d are copied back, %v", got, err)
	}
	same("the disk", back.registry)

	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := Copy(ended, f.registry, back.registry); !errors.Is(err, context.Canceled) {
		t.Errorf("when it was stopped: %v", err)
	}
	other := redis()
	other.opts.ClaimFor = time.Minute
	claim(t, other, subscriptions(9, 1)[0].ID().Shard())
	if _, err := Copy(ctx, f.registry, redis()); err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("beside somebody else: %v", err)
	}
}

var errStopped = errors.New("stopped")

// stopping is a registry that fails for good after some steps, which it does
// though.
type stopping struct {
	Registry
	left atomic.Int64
}

func (s *stopping) step() error {
	if s.left.Add(-1) > 0 {
		return nil
	}
	return errStopped
}

func (s *stopping) Send(ctx context.Context, r Request) error {
	return errors.Join(s.Registry.Send(ctx, r), s.step())
}

func (s *stopping) Commit(ctx context.Context, c Claim, changes Changes) error {
	return errors.Join(s.Registry.Commit(ctx, c, changes), s.step())
}
