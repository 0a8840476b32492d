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

// A Map is a durable, ordered map from keys to bytes. Package changelog/disklog has one. Methods may be
// called concurrently.
type Map interface {
	claim.Map

	// Scan calls do, in ascending order, with each key that starts with prefix and is greater than
	// after, until do returns false. A value is valid only until do returns.
	Scan(ctx context.Context, prefix, after string, do func(key string, value []byte) bool) error
}

// A Fence runs writes under claims. claim.Local is one.
type Fence interface {
	// Under calls do while the claim is held, and returns its error. No other call runs under the claim
	// at the same time. If the claim is not held, it returns claim.ErrLost without calling do.
	Under(c claim.Claim, do func() error) error
}

// A Disk is the Registry of a single hub. Its keys are:
//
//	record/<id>/progress   progress of a subscription, directly before the subscription so that one scan reads both
//	record/<id>/self       the subscription
//	inbox/<shard><number>  a request; shard is one byte, number eight bytes, big endian
type Disk struct {
	data    Map
	claims  Fence
	keys    *Keys
	inboxes [Shards]diskInbox
}

var _ Registry = (*Disk)(nil)

// A diskInbox is what a Disk has in memory of an inbox.
type diskInbox struct {
	sending sync.Mutex // held during Send, so that requests become durable in the order of their numbers

	mu      sync.Mutex
	number  uint64   // of the newest request ever
	pending []uint64 // numbers of the requests in the inbox, ascending; the last may not be durable yet
}

// OpenDisk opens the registry in a Map. No other code may use its keys that start with "record/" and
// "inbox/". claims fences commits. keys encrypt the secrets, unless it is nil.
func OpenDisk(ctx context.Context, data Map, claims Fence, keys *Keys) (*Disk, error) {
	d := &Disk{data: data, claims: claims, keys: keys}
	invalid := ""
	err := data.Scan(ctx, "inbox/", "", func(key string, _ []byte) bool {
		if len(key) != len(inboxKey(0, 0)) {
			invalid = key
			return false
		}
		in := &d.inboxes[key[len("inbox/")]]
		in.number = requestNumber(key)
		in.pending = append(in.pending, in.number)
		return true
	})
	if err == nil && invalid != "" {
		err = fmt.Errorf("%w: key %q", changelog.ErrCorrupt, invalid)
	}
	if err != nil {
		return nil, fmt.Errorf("open subscriptions: %w", err)
	}
	return d, nil
}

func recordKey(id ID) string   { return "record/" + string(id[:]) + "/self" }
func progressKey(id ID) string { return "record/" + string(id[:]) + "/progress" }

func inboxKey(shard int, number uint64) string {
	return string(binary.BigEndian.AppendUint64(append([]byte("inbox/"), byte(shard)), number))
}

// requestNumber returns the number in a key from inboxKey.
func requestNumber(key string) uint64 { return binary.BigEndian.Uint64([]byte(key[len(key)-8:])) }

// Send implements Registry.
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
	in := &d.inboxes[shard]
	in.sending.Lock()
	defer in.sending.Unlock()
	number, err := in.add(r.inboxLimit(InboxMax))
	if err != nil {
		return err
	}
	if err = d.data.Apply(ctx, map[string][]byte{inboxKey(shard, number): b}, true); err != nil {
		in.remove(number)
	}
	return err
}

// add adds a request and returns its number, or ErrBusy if limit requests are pending.
func (in *diskInbox) add(limit int) (uint64, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if n := len(in.pending); n >= limit {
		return 0, fmt.Errorf("%w: %d", ErrBusy, n)
	}
	in.number = max(in.number+1, uint64(time.Now().UnixMicro()))
	in.pending = append(in.pending, in.number)
	return in.number, nil
}

// remove removes requests, if they are pending.
func (in *diskInbox) remove(numbers ...uint64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, number := range numbers {
		if i, found := slices.BinarySearch(in.pending, number); found {
			in.pending = slices.Delete(in.pending, i, i+1)
		}
	}
}

// Newest implements Registry.
func (d *Disk) Newest(ctx context.Context, shards []int) ([]uint64, error) {
	numbers := make([]uint64, len(shards))
	if err := ctx.Err(); err != nil {
		return numbers, fmt.Errorf("list inboxes: %w", err)
	}
	for i, shard := range shards {
		in := &d.inboxes[shard]
		in.mu.Lock()
		if n := len(in.pending); n > 0 {
			numbers[i] = in.pending[n-1]
		}
		in.mu.Unlock()
	}
	return numbers, nil
}

// Inbox implements Registry.
func (d *Disk) Inbox(ctx context.Context, shard int, after uint64, limit int) ([]Request, error) {
	var requests []Request
	err := d.data.Scan(ctx, "inbox/"+string([]byte{byte(shard)}), inboxKey(shard, after), func(key string, b []byte) bool {
		if len(requests) == limit {
			return false
		}
		requests = append(requests, decodeRequest(requestNumber(key), b, d.keys))
		return true
	})
	if err != nil {
		return nil, fmt.Errorf("read inbox of shard %d: %w", shard, err)
	}
	return requests, nil
}

// Commit implements Registry.
func (d *Disk) Commit(ctx context.Context, c claim.Claim, changes Changes) error {
	if err := d.claims.Under(c, func() error { return d.commit(ctx, c.Shard, &changes) }); err != nil {
		return fmt.Errorf("commit to shard %d: %w", c.Shard, err)
	}
	return nil
}

func (d *Disk) commit(ctx context.Context, shard int, changes *Changes) error {
	if err := changes.check(shard); err != nil {
		return err
	}
	writes := make(map[string][]byte, 2*len(changes.Put)+len(changes.Progress)+2*len(changes.Delete)+len(changes.Done))
	for i := range changes.Put {
		r := &changes.Put[i]
		b, err := encodeSubscription(&r.Subscription, d.keys)
		if err != nil {
			return err
		}
		writes[recordKey(r.ID())], writes[progressKey(r.ID())] = b, encodeProgress(&r.Progress)
	}
	for id, p := range changes.Progress {
		writes[progressKey(id)] = encodeProgress(&p)
	}
	for _, id := range changes.Delete {
		writes[recordKey(id)], writes[progressKey(id)] = nil, nil
	}
	for _, number := range changes.Done {
		writes[inboxKey(shard, number)] = nil
	}
	if err := d.data.Apply(ctx, writes, len(changes.Put) > 0); err != nil {
		return err
	}
	d.inboxes[shard].remove(changes.Done...)
	return nil
}

// Find implements Registry.
func (d *Disk) Find(ctx context.Context, id ID) (Record, error) {
	for r, err := range d.scan(ctx, string(id[:]), ID{}) {
		if err != nil {
			return Record{}, fmt.Errorf("find subscription %v: %w", id, err)
		}
		return r, nil
	}
	return Record{}, fmt.Errorf("find subscription %v: %w", id, ErrNoSubscription)
}

// Load implements Registry.
func (d *Disk) Load(ctx context.Context, shard int) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		for r, err := range d.scan(ctx, string([]byte{byte(shard)}), ID{}) {
			if err != nil {
				err = fmt.Errorf("load shard %d: %w", shard, err)
			}
			if !yield(r, err) {
				return
			}
		}
	}
}

// List implements Registry.
func (d *Disk) List(ctx context.Context, set string, after ID, limit int) (records []Record, more bool, err error) {
	for shard := after.Shard(); shard < Shards; shard++ {
		for r, err := range d.scan(ctx, string([]byte{byte(shard)})+string(setHash(set)), after) {
			switch {
			case err != nil:
				return nil, false, fmt.Errorf("list subscriptions of set %q: %w", set, err)
			case r.Set != set: // its hash is the same
			case len(records) == limit:
				return records, true, nil
			default:
				records = append(records, r)
			}
		}
	}
	return records, false, nil
}

// scan yields the records whose ID starts with prefix and is greater than after. An error ends the
// sequence, except ErrRecord, which it yields instead of a record that it cannot decode.
func (d *Disk) scan(ctx context.Context, prefix string, after ID) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		var progress []byte
		more := true
		err := d.data.Scan(ctx, "record/"+prefix, recordKey(after), func(key string, b []byte) bool {
			if strings.HasSuffix(key, "/progress") {
				progress = slices.Clone(b)
				return true
			}
			r, err := decodeRecord(b, progress, d.keys)
			if err != nil {
				id := strings.TrimSuffix(strings.TrimPrefix(key, "record/"), "/self")
				err = fmt.Errorf("%w, %x: %w", ErrRecord, id, err)
			}
			more = yield(r, err)
			return more
		})
		if err != nil && more {
			yield(Record{}, err)
		}
	}
}
