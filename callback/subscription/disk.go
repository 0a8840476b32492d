package subscription

import (
	"context"
	"encoding/binary"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/internal/claim"
)

// A Keep is a durable, ordered map from keys to bytes. Package disklog has one.
// Methods may be called concurrently.
type Keep interface {
	// Get returns the value of a key, or nil when there is none.
	Get(ctx context.Context, key string) ([]byte, error)

	// Scan calls do, in ascending order, with each key that begins with prefix
	// and is greater than after, until do returns false. A value is valid only
	// until do returns.
	Scan(ctx context.Context, prefix, after string, do func(key string, value []byte) bool) error

	// Apply sets keys to values, and removes the keys whose value is nil, in
	// one atomic step, which is durable when Apply returns nil. grows says that
	// the map gets larger; then a full Keep refuses with feed.ErrFull.
	Apply(ctx context.Context, writes map[string][]byte, grows bool) error
}

// A Disk is the Registry of a hub that shares with no other hub. Its keys are:
//
//	record/<id>/progress   the progress of a subscription; next to it, so that one scan reads both
//	record/<id>/self       the subscription
//	inbox/<shard><number>  a request; shard is one byte, number eight bytes, big endian
type Disk struct {
	keep   Keep
	claims Fence
	keys   *Keys
	shards [Shards]diskShard
}

// A Fence runs writes only while a claim counts. claim.Local is one.
type Fence interface {
	// Under calls do while the claim counts, and returns the error of do.
	// Nothing else is done under the claim meanwhile. If the claim does not
	// count any more, it returns claim.ErrLost and does not call do.
	Under(c claim.Claim, do func() error) error
}

var _ Registry = (*Disk)(nil)

// A diskShard is what is in memory of one shard's inbox. It locks itself.
type diskShard struct {
	mu      sync.Mutex
	number  uint64   // number of the newest request
	sending []uint64 // requests on their way to the disk, ascending
	waiting []uint64 // requests in the inbox, ascending
}

// OpenDisk opens the registry in a Keep. Nobody else may use its keys that
// begin with "record/" and "inbox/". claims fences what is committed. keys encrypt the
// secrets; nil: they are kept in clear.
func OpenDisk(ctx context.Context, keep Keep, claims Fence, keys *Keys) (*Disk, error) {
	d := &Disk{keep: keep, claims: claims, keys: keys}
	if err := d.open(ctx); err != nil {
		return nil, fmt.Errorf("open subscriptions: %w", err)
	}
	return d, nil
}

// open reads which requests wait.
func (d *Disk) open(ctx context.Context) error {
	bad := ""
	err := d.keep.Scan(ctx, "inbox/", "", func(key string, _ []byte) bool {
		if len(key) != len(inboxKey(0, 0)) {
			bad = key
			return false
		}
		s := &d.shards[key[len("inbox/")]]
		s.number = binary.BigEndian.Uint64([]byte(key[len(key)-8:]))
		s.waiting = append(s.waiting, s.number)
		return true
	})
	if err == nil && bad != "" {
		err = fmt.Errorf("%w: key %q", changelog.ErrCorrupt, bad)
	}
	return err
}

func recordKey(id ID) string   { return "record/" + string(id[:]) + "/self" }
func progressKey(id ID) string { return "record/" + string(id[:]) + "/progress" }

func inboxKey(shard int, number uint64) string {
	return string(binary.BigEndian.AppendUint64(append([]byte("inbox/"), byte(shard)), number))
}

// Send adds a request to the end of its shard's inbox.
func (d *Disk) Send(ctx context.Context, r Request) error {
	id := r.ID()
	if err := d.send(ctx, id.Shard(), &r); err != nil {
		return fmt.Errorf("send request for subscription %v: %w", id, err)
	}
	return nil
}

func (d *Disk) send(ctx context.Context, shard int, r *Request) error {
	b, err := encodeRequest(r, d.keys)
	if err != nil {
		return err
	}
	s := &d.shards[shard]
	number, err := s.begin(r.inboxRoom(InboxMax))
	if err != nil {
		return err
	}
	err = d.keep.Apply(ctx, map[string][]byte{inboxKey(shard, number): b}, true)
	s.end(number, err == nil)
	return err
}

// begin gives a request its number. It returns ErrBusy when room requests wait
// already.
func (s *diskShard) begin(room int) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.waiting) + len(s.sending); n >= room {
		return 0, fmt.Errorf("%w: %d", ErrBusy, n)
	}
	s.number = max(s.number+1, uint64(time.Now().UnixMicro()))
	s.sending = append(s.sending, s.number)
	return s.number, nil
}

// end notes that a request is durable, or that it failed.
func (s *diskShard) end(number uint64, sent bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i, found := slices.BinarySearch(s.sending, number); found {
		s.sending = slices.Delete(s.sending, i, i+1)
	}
	if i, found := slices.BinarySearch(s.waiting, number); sent && !found {
		s.waiting = slices.Insert(s.waiting, i, number)
	}
}

// settled returns the number below which no request is on its way to the disk
// any more. A reader that stops there misses none.
func (s *diskShard) settled() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.sending) > 0 {
		return s.sending[0]
	}
	return s.number + 1
}

// newest returns the number of the newest request in the inbox, or 0 when there
// is none.
func (s *diskShard) newest() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) == 0 {
		return 0
	}
	return s.waiting[len(s.waiting)-1]
}

// done notes that requests have left the inbox.
func (s *diskShard) done(numbers []uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range numbers {
		if i, found := slices.BinarySearch(s.waiting, n); found {
			s.waiting = slices.Delete(s.waiting, i, i+1)
		}
	}
}

// Newest returns, for each of the shards, the number of the newest request.
func (d *Disk) Newest(ctx context.Context, shards []int) ([]uint64, error) {
	numbers := make([]uint64, len(shards))
	if err := ctx.Err(); err != nil {
		return numbers, fmt.Errorf("list inboxes: %w", err)
	}
	for i, shard := range shards {
		numbers[i] = d.shards[shard].newest()
	}
	return numbers, nil
}

// Inbox returns the oldest requests of a shard with a number greater than
// after.
func (d *Disk) Inbox(ctx context.Context, shard int, after uint64, limit int) ([]Request, error) {
	var requests []Request
	settled := d.shards[shard].settled()
	err := d.keep.Scan(ctx, "inbox/"+string([]byte{byte(shard)}), inboxKey(shard, after), func(key string, b []byte) bool {
		number := binary.BigEndian.Uint64([]byte(key[len(key)-8:]))
		if number >= settled || len(requests) >= limit {
			return false
		}
		requests = append(requests, decodeRequest(number, b, d.keys))
		return true
	})
	if err != nil {
		return nil, fmt.Errorf("read inbox of shard %d: %w", shard, err)
	}
	return requests, nil
}

// Commit makes changes to a shard in one atomic step.
func (d *Disk) Commit(ctx context.Context, c claim.Claim, changes Changes) error {
	err := d.claims.Under(c, func() error { return d.commit(ctx, c, changes) })
	if err != nil {
		return fmt.Errorf("commit to shard %d: %w", c.Shard, err)
	}
	return nil
}

func (d *Disk) commit(ctx context.Context, c claim.Claim, changes Changes) error {
	writes := make(map[string][]byte, 2*len(changes.Put)+len(changes.Progress)+2*len(changes.Delete)+len(changes.Done))
	for i := range changes.Put {
		r := &changes.Put[i]
		id := r.ID()
		if err := inShard(c, id); err != nil {
			return err
		}
		b, err := encodeSubscription(&r.Subscription, d.keys)
		if err != nil {
			return err
		}
		writes[recordKey(id)], writes[progressKey(id)] = b, encodeProgress(&r.Progress)
	}
	for id, p := range changes.Progress {
		if err := inShard(c, id); err != nil {
			return err
		}
		there := writes[recordKey(id)]
		if there == nil {
			var err error
			if there, err = d.keep.Get(ctx, recordKey(id)); err != nil {
				return err
			}
		}
		if there != nil {
			writes[progressKey(id)] = encodeProgress(&p)
		}
	}
	for _, id := range changes.Delete {
		if err := inShard(c, id); err != nil {
			return err
		}
		writes[recordKey(id)], writes[progressKey(id)] = nil, nil
	}
	for _, number := range changes.Done {
		writes[inboxKey(c.Shard, number)] = nil
	}
	if err := d.keep.Apply(ctx, writes, len(changes.Put) > 0); err != nil {
		return err
	}
	d.shards[c.Shard].done(changes.Done)
	return nil
}

// inShard returns nil when a subscription is in a claim's shard.
func inShard(c claim.Claim, id ID) error {
	if id.Shard() != c.Shard {
		return fmt.Errorf("subscription %v is in shard %d", id, id.Shard())
	}
	return nil
}

// Find returns one record.
func (d *Disk) Find(ctx context.Context, id ID) (Record, error) {
	found, there := Record{}, false
	var bad error
	err := d.scan(ctx, string(id[:]), ID{}, func(r Record, err error) bool {
		found, bad, there = r, err, true
		return false
	})
	if err == nil {
		err = bad
	}
	if err == nil && !there {
		err = ErrNoSubscription
	}
	if err != nil {
		return Record{}, fmt.Errorf("find subscription %v: %w", id, err)
	}
	return found, nil
}

// Load yields all records of a shard.
func (d *Disk) Load(ctx context.Context, shard int) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		more := true
		err := d.scan(ctx, string([]byte{byte(shard)}), ID{}, func(r Record, err error) bool {
			more = yield(r, err)
			return more
		})
		if err != nil && more {
			yield(Record{}, fmt.Errorf("load shard %d: %w", shard, err))
		}
	}
}

// List returns records of one set in the order of their IDs.
func (d *Disk) List(ctx context.Context, set string, after ID, limit int) (records []Record, more bool, err error) {
	mark := string(setMark(set))
	for shard := after.Shard(); shard < Shards && !more; shard++ {
		var bad error
		err := d.scan(ctx, string([]byte{byte(shard)})+mark, after, func(r Record, err error) bool {
			if err != nil {
				bad = err
				return false
			}
			if more = r.Set == set && len(records) == limit; r.Set == set && !more {
				records = append(records, r)
			}
			return !more
		})
		if err == nil {
			err = bad
		}
		if err != nil {
			return nil, false, fmt.Errorf("list subscriptions of set %q: %w", set, err)
		}
	}
	return records, more, nil
}

// scan calls do with each record whose ID begins with prefix and is greater
// than after, until do returns false. If a record cannot be read, do gets
// ErrRecord instead of it.
func (d *Disk) scan(ctx context.Context, prefix string, after ID, do func(Record, error) bool) error {
	var progress []byte
	return d.keep.Scan(ctx, "record/"+prefix, recordKey(after), func(key string, b []byte) bool {
		id, isProgress := strings.CutSuffix(strings.TrimPrefix(key, "record/"), "/progress")
		if isProgress { // the subscription has the next key
			progress = slices.Clone(b)
			return true
		}
		r, err := decodeRecord(b, progress, d.keys)
		if err != nil {
			err = fmt.Errorf("%w, %x: %w", ErrRecord, strings.TrimSuffix(id, "/self"), err)
		}
		return do(r, err)
	})
}
