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

// readAll returns all records and requests of a registry, the latter without numbers.
func readAll(t *testing.T, r Registry) (records map[ID]Record, requests map[int][]Request) {
	t.Helper()
	records, requests = map[ID]Record{}, map[int][]Request{}
	for shard := range Shards {
		inShard, inbox, err := readShard(t.Context(), r, shard)
		if err != nil {
			t.Fatal(err)
		}
		for _, record := range inShard {
			records[record.ID()] = record
		}
		for i := range inbox {
			inbox[i].Number = 0
		}
		if len(inbox) > 0 {
			requests[shard] = inbox
		}
	}
	return records, requests
}

// A copy from the disk to Redis is complete even if earlier copies were interrupted.
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
		mustCommit(t, disk, acquire(t, disk, r.ID().Shard()), Changes{Put: []Record{r}})
	}
	for i := range 30 {
		r := Request{Mode: Subscribe, Set: "demo", Callback: fmt.Sprint("https://new.example/", i%7), Terms: Terms{Secret: "secret"}, Lease: time.Duration(i), At: now}
		if err := disk.Send(ctx, r); err != nil {
			t.Fatal(err)
		}
	}
	records, requests := readAll(t, disk)
	if len(records) != 60 || len(requests) == 0 {
		t.Fatalf("on disk: got %d records and requests in %d shards, want 60 and some", len(records), len(requests))
	}

	s := redistest.Start(t)
	newHub := func() redisHub { // each copy is another hub
		return newRedisHub(t, conntest.Open(t, s.Addr, redisconn.Options{}), "p", claim.RedisOptions{ClaimFor: 300 * time.Millisecond})
	}
	for _, shard := range []int{0, 1} { // records to be removed, and the claim of a copy that was killed
		r := newHub()
		mustCommit(t, r, acquire(t, r, shard), Changes{Put: recordsIn(shard, 2)})
	}
	for stop := 1; ; stop += 40 {
		hub := newHub()
		_, err := Copy(ctx, disk, &failingRegistry{Registry: hub, calls: stop}, hub)
		if err == nil {
			break
		}
		if !errors.Is(err, errStopped) {
			t.Fatal(err)
		}
	}
	again := newHub()
	if n, err := Copy(ctx, disk, again, again); err != nil || n != 60 {
		t.Errorf("second Copy() = %d, %v, want 60", n, err)
	}
	if a, b := readAll(t, newHub()); !reflect.DeepEqual(a, records) || !reflect.DeepEqual(b, requests) {
		t.Errorf("in Redis: got %d records and requests in %d shards, want those on disk", len(a), len(b))
	}

	other := newRedisHub(t, conntest.Open(t, s.Addr, redisconn.Options{}), "p", claim.RedisOptions{ClaimFor: time.Minute})
	for id := range records { // any shard with subscriptions
		acquire(t, other, id.Shard())
		break
	}
	if _, err := Copy(ctx, disk, again, again); err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("Copy() while a hub has a claim = %v, want an error", err)
	}
}

var errStopped = errors.New("stopped")

// A failingRegistry fails after a number of writes. The write that fails takes effect.
type failingRegistry struct {
	Registry
	calls int
}

func (r *failingRegistry) fail() error {
	if r.calls--; r.calls > 0 {
		return nil
	}
	return errStopped
}

func (r *failingRegistry) Send(ctx context.Context, q Request) error {
	return errors.Join(r.Registry.Send(ctx, q), r.fail())
}

func (r *failingRegistry) Commit(ctx context.Context, c claim.Claim, changes Changes) error {
	return errors.Join(r.Registry.Commit(ctx, c, changes), r.fail())
}
