package subscription

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/claim"
	"github.com/rshub/rshub/internal/redisconn"
	"github.com/rshub/rshub/internal/testutil"
	"github.com/rshub/rshub/internal/testutil/conntest"
	"github.com/rshub/rshub/internal/testutil/redistest"
)

// content returns everything that a registry holds, except the numbers of requests.
func content(t *testing.T, r Registry) (records map[ID]Record, requests map[int][]Request) {
	t.Helper()
	records, requests = map[ID]Record{}, map[int][]Request{}
	for shard := range Shards {
		some, waiting, err := readShard(t.Context(), r, shard)
		if err != nil {
			t.Fatal(err)
		}
		for _, record := range some {
			records[record.ID()] = record
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

// Subscriptions are copied from the disk to Redis. Nothing is lost, even when a copy was
// interrupted and begun again.
func TestCopy(t *testing.T) {
	ctx := t.Context()
	now := time.Date(2026, 3, 4, 5, 6, 0, 0, time.UTC)
	disk := openDisk(t, &testutil.Map{})
	for n := range 60 {
		r := Record{
			Subscription: Subscription{
				Set: "demo", Callback: fmt.Sprintf("https://callback.example/%d", n), Terms: Terms{Secret: "secret"},
				LeaseEnd: now.Add(time.Hour), Token: fmt.Sprint("token", n), Made: now.Add(-time.Hour),
			},
			Progress: Progress{
				Cursor: feed.Cursor{Position: uint64(n), Micros: 5}, Failed: n % 3, Next: now,
				Last: []Attempt{{At: now, Kind: "deliver", Status: 500, Error: "no success"}},
			},
		}
		if err := disk.Commit(ctx, claimOn(t, disk, r.ID().Shard()), Changes{Put: []Record{r}}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 30 {
		r := Request{Mode: Subscribe, Set: "demo", Callback: fmt.Sprint("https://new.example/", i%7), Terms: Terms{Secret: "secret"}, Lease: time.Duration(i), At: now}
		if err := disk.Send(ctx, r); err != nil {
			t.Fatal(err)
		}
	}
	records, requests := content(t, disk)
	if len(records) != 60 || len(requests) == 0 {
		t.Fatalf("there are %d records, and requests in %d shards", len(records), len(requests))
	}

	s := redistest.Start(t)
	redis := func() onRedis { // each copy is a hub of its own
		return hubWith(t, conntest.Open(t, s.Addr, redisconn.Options{}), "p", RedisOptions{}, claim.RedisOptions{ClaimFor: 300 * time.Millisecond})
	}
	for _, shard := range []int{0, 1} { // records that are not in the source, and the claim of a copy that was killed
		r := redis()
		if err := r.Commit(ctx, claimOn(t, r, shard), Changes{Put: subscriptions(shard, 2)}); err != nil {
			t.Fatal(err)
		}
	}
	for stop := 1; ; stop += 40 {
		hub := redis()
		_, err := Copy(ctx, disk, &stopping{Registry: hub, left: stop}, hub)
		if err == nil {
			break
		}
		if !errors.Is(err, errStopped) {
			t.Fatal(err)
		}
	}
	again := redis()
	if n, err := Copy(ctx, disk, again, again); err != nil || n != 60 {
		t.Errorf("%d are copied again, %v", n, err)
	}
	if a, b := content(t, redis()); !reflect.DeepEqual(a, records) || !reflect.DeepEqual(b, requests) {
		t.Errorf("Redis has %d records, and requests in %d shards", len(a), len(b))
	}

	other := hubWith(t, conntest.Open(t, s.Addr, redisconn.Options{}), "p", RedisOptions{}, claim.RedisOptions{ClaimFor: time.Minute})
	for id := range records { // any shard with subscriptions
		claimOn(t, other, id.Shard())
		break
	}
	if _, err := Copy(ctx, disk, again, again); err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("beside somebody else: %v", err)
	}
}

var errStopped = errors.New("stopped")

// A stopping is a registry that fails for good after some calls. It still carries out
// the call that fails.
type stopping struct {
	Registry
	left int
}

func (s *stopping) step() error {
	if s.left--; s.left > 0 {
		return nil
	}
	return errStopped
}

func (s *stopping) Send(ctx context.Context, r Request) error {
	return errors.Join(s.Registry.Send(ctx, r), s.step())
}

func (s *stopping) Commit(ctx context.Context, c claim.Claim, changes Changes) error {
	return errors.Join(s.Registry.Commit(ctx, c, changes), s.step())
}
