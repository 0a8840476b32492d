package hub

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// batchAfter returns a batch of n entries that follow a cursor.
func batchAfter(after feed.Cursor, n int) *feed.Batch {
	changes := make([]resourcesync.Change, n)
	for i := range changes {
		changes[i] = resourcesync.Change{Loc: "https://example.org/a", Change: resourcesync.Updated}
	}
	last := feed.Cursor{Position: after.Position + uint64(n), Micros: after.Micros + int64(n) + 5}
	return feed.NewBatch("a.set", after, last, changes)
}

// appended returns what a log with lists of some size answers when it has appended b.
func appended(b *feed.Batch, listSize int) changelog.Appended {
	changes := make([]resourcesync.Change, len(b.Entries))
	for i := range changes {
		changes[i] = b.Entries[i].Change
	}
	blocks := changelog.CutBlocks(changes, b.After.Position+1, listSize)
	return changelog.Appended{After: b.After, Cursor: b.Cursor, Count: len(changes), Blocks: blocks}
}

// me is who sends the announcements of tests.
var me = memoryKey{"m", "secret"}

// encoded returns the only announcement of an append.
func encoded(from memoryKey, a changelog.Appended) []byte {
	return encodeAnnouncements(from, "a.set", a, 1<<20)[0]
}

// atTime is when the entries of batchAfter{Micros: 1_000} are new.
var atTime = time.UnixMicro(1_000)

func TestAnnouncement(t *testing.T) {
	b := batchAfter(feed.Cursor{Position: 7, Micros: 1_000}, 10)
	whole := appended(b, 1000)
	bare := changelog.Appended{After: b.After, Cursor: b.Cursor, Count: 10}
	hole := appended(batchAfter(b.After, 9), 1000)
	hole.Cursor, hole.Count, hole.Blocks[0].Count = b.Cursor, 10, 10
	none := changelog.Appended{After: b.After, Cursor: b.After, Blocks: []changelog.CutBlock{{}}}
	changed := func(i int, b byte) []byte {
		m := encoded(me, whole)
		m[(i+len(m))%len(m)] ^= b
		return m
	}
	for _, test := range []struct {
		name string
		in   []byte
		want *feed.Batch
		err  error
	}{
		{"whole", encoded(me, whole), b, nil},
		{"in several blocks", encoded(me, appended(b, 4)), b, nil},
		{"without entries", encoded(me, bare), nil, nil},
		{"of no entry", encoded(me, changelog.Appended{Cursor: feed.Cursor{Micros: 1_000}}), nil, nil},
		{"of another memory", encoded(memoryKey{"n", "secret"}, whole), nil, errOtherMemory},
		{"with another secret", encoded(memoryKey{"m", "Secret"}, whole), nil, errBadMAC},
		{"without a secret", encoded(memoryKey{"m", ""}, whole), nil, errBadMAC},
		{"of another set", encodeAnnouncements(me, "b.set", whole, 1<<20)[0], nil, errBadMAC},
		{"of another set whose name is longer", append(encodeAnnouncements(me, "a.set1", bare, 1<<20)[0], '1'), nil, errBadMAC},
		{"changed in the cursor", changed(5, 1), nil, errBadMAC},
		{"changed in the block", changed(30, 1), nil, errBadMAC},
		{"changed in the mac", changed(-1, 1), nil, errBadMAC},
		{"empty", nil, nil, errVersion},
		{"of version 1", append([]byte{1}, encoded(me, whole)[1:]...), nil, errVersion},
		{"of a later version", append([]byte{3}, encoded(me, whole)[1:]...), nil, errVersion},
		{"cut in the mac", encoded(me, bare)[:8], nil, errVersion},
		{"cut in the memory", append([]byte{2, 30}, make([]byte, 40)...), nil, errMalformed},
		{"cut in the block", encoded(me, whole)[:60], nil, errBadMAC},
		{"with a hole", encoded(me, hole), nil, errMalformed},
		{"with an empty block", encoded(me, none), nil, changelog.ErrCorrupt},
		{"of ten years ahead", encoded(me, appended(batchAfter(feed.Cursor{Position: 7, Micros: 10 * 365 * 24 * time.Hour.Microseconds()}, 1), 10)), nil, errClockSkew},
		{"of a bit ahead", encoded(me, changelog.Appended{Cursor: feed.Cursor{Micros: 61e6}}), nil, errClockSkew},
		{"of before 1970", encoded(me, changelog.Appended{Cursor: feed.Cursor{Micros: -1}}), nil, errMalformed},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := openAnnouncement(me, "a.set", test.in, atTime, time.Minute)
			if !errors.Is(err, test.err) {
				t.Fatalf("got error %v, want %v", err, test.err)
			}
			if test.want == nil {
				if got.batch != nil {
					t.Fatalf("batch %+v, want none", got.batch)
				}
				return
			}
			if got.batch == nil || got.batch.After != b.After || got.batch.Cursor != b.Cursor || got.cursor != b.Cursor || !reflect.DeepEqual(got.batch.Entries, b.Entries) {
				t.Errorf("batch %+v, want %+v", got.batch, b)
			}
		})
	}
	if _, err := openAnnouncement(memoryKey{"m", ""}, "a.set", encoded(memoryKey{"m", ""}, whole), atTime, time.Minute); !errors.Is(err, errBadMAC) {
		t.Errorf("a hub without the secret accepts a message: %v", err)
	}
	if _, err := openAnnouncement(me, "a.set", encoded(me, whole), atTime.Add(2*time.Minute), time.Minute); !errors.Is(err, errClockSkew) {
		t.Errorf("an old message is accepted: %v", err)
	}
}

// An append that is larger than a message of NATS is announced in parts. A block that
// does not fit into a message is announced without its content. No entry between the
// parts is left out.
func TestAnnouncementParts(t *testing.T) {
	b := batchAfter(feed.Cursor{Position: 7, Micros: 1_000}, 2500)
	for _, test := range []struct{ listSize, most, want, bare int }{
		{10_000, 1 << 20, 3, 0}, // MaxBlockEntries each
		{500, 1 << 20, 3, 0},
		{10_000, 90, 3, 3},
		{100, 240, 5, 0},
	} {
		after, bare := b.After, 0
		all := encodeAnnouncements(me, "a.set", appended(b, test.listSize), test.most)
		for _, p := range all {
			got, err := openAnnouncement(me, "a.set", p, atTime, time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			if got.batch == nil {
				bare++
				continue
			}
			if bare == 0 && got.batch.After != after || len(p) > test.most {
				t.Fatalf("%+v: after %v comes %v to %v in %d bytes", test, after, got.batch.After, got.cursor, len(p))
			}
			after = got.cursor
		}
		if len(all) < test.want || bare != test.bare || bare == 0 && after != b.Cursor {
			t.Errorf("%+v: %d announcements, %d of them bare, up to %v", test, len(all), bare, after)
		}
	}
}

// Whatever comes over NATS, only what was made with the secret is believed. Whatever a
// hub of the memory says, a batch has no hole.
func FuzzAnnouncement(f *testing.F) {
	b := batchAfter(feed.Cursor{Position: 7, Micros: 1_000}, 10)
	for _, a := range []changelog.Appended{appended(b, 1000), appended(b, 3), {After: b.After, Cursor: b.Cursor}, {Cursor: b.Cursor}} {
		f.Add(encoded(me, a))
	}
	other := memoryKey{"m", "another secret"}
	f.Fuzz(func(t *testing.T, p []byte) {
		if _, err := openAnnouncement(other, "a.set", p, atTime, time.Minute); err == nil {
			t.Error("a message is accepted without its secret")
		}
		body, err := me.verify("a.set", p)
		if err != nil {
			body = p // as if a hub of the memory had sent it
		}
		got, err := decodeAnnouncement("a.set", body)
		if err != nil || got.batch == nil {
			return
		}
		if n := len(got.batch.Entries); n == 0 || got.batch.Entries[n-1].Cursor != got.cursor || got.batch.Entries[0].Position != got.batch.After.Position+1 {
			t.Errorf("batch %v to %v with %d entries", got.batch.After, got.cursor, n)
		}
	})
}
