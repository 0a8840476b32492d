package hub

import (
	"reflect"
	"testing"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/resourcesync"
)

// batchAfter returns a batch of n entries that follow a cursor.
func batchAfter(after changelog.Cursor, n int) *changelog.Batch {
	changes := make([]resourcesync.Change, n)
	for i := range changes {
		changes[i] = resourcesync.Change{Loc: "https://example.org/a", Change: resourcesync.Updated}
	}
	last := changelog.Cursor{Position: after.Position + uint64(n), Micros: after.Micros + int64(n) + 5}
	return changelog.NewBatch("a.set", changelog.Appended{After: after, Cursor: last, Count: n}, changes)
}

// appended returns b as a log with lists of some size says that it appended it.
func appended(b *changelog.Batch, listSize int) changelog.Appended {
	changes := make([]resourcesync.Change, len(b.Entries))
	for i := range changes {
		changes[i] = b.Entries[i].Change
	}
	blocks := changelog.CutBlocks(changes, b.After.Position+1, listSize)
	return changelog.Appended{After: b.After, Cursor: b.Cursor, Count: len(changes), Blocks: blocks}
}

// encoded is the only announcement of an append.
func encoded(memory string, a changelog.Appended) []byte { return announcements(memory, a, 1<<20)[0] }

func TestAnnouncement(t *testing.T) {
	b := batchAfter(changelog.Cursor{Position: 7, Micros: 1_000}, 10)
	whole := appended(b, 1000)
	bare := changelog.Appended{After: b.After, Cursor: b.Cursor, Count: 10}
	hole := appended(batchAfter(b.After, 9), 1000)
	hole.Cursor, hole.Count, hole.Blocks[0].Count = b.Cursor, 10, 10
	none := changelog.Appended{After: b.After, Cursor: b.After, Blocks: []changelog.CutBlock{{}}}
	for _, test := range []struct {
		name string
		in   []byte
		want *changelog.Batch
		ok   bool
	}{
		{"whole", encoded("m", whole), b, true},
		{"in several blocks", encoded("m", appended(b, 4)), b, true},
		{"without entries", encoded("m", bare), nil, true},
		{"of another memory", encoded("n", whole), nil, true},
		{"empty", nil, nil, false},
		{"of another version", append([]byte{2}, encoded("m", whole)[1:]...), nil, false},
		{"cut in the cursor", encoded("m", bare)[:6], nil, false},
		{"cut in the block", encoded("m", whole)[:60], nil, false},
		{"with a hole", encoded("m", hole), nil, false},
		{"with an empty block", encoded("m", none), nil, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := decodeAnnouncement("a.set", "m", test.in)
			if (err == nil) != test.ok {
				t.Fatalf("error %v", err)
			}
			if test.want == nil {
				if got != nil {
					t.Fatalf("batch %+v, want none", got)
				}
				return
			}
			if got == nil || got.After != b.After || got.Cursor != b.Cursor || !reflect.DeepEqual(got.Entries, b.Entries) {
				t.Errorf("batch %+v, want %+v", got, b)
			}
		})
	}
}

// An append that is larger than NATS takes is announced in parts, and what does
// not fit into one without its content. Nothing between them is left out.
func TestAnnouncementParts(t *testing.T) {
	b := batchAfter(changelog.Cursor{Position: 7, Micros: 1_000}, 2500)
	for _, test := range []struct{ listSize, most, want, bare int }{
		{10_000, 1 << 20, 3, 0}, // MaxBlockEntries each
		{500, 1 << 20, 3, 0},
		{10_000, 60, 3, 3},
		{100, 200, 5, 0},
	} {
		after, bare := b.After, 0
		all := announcements("m", appended(b, test.listSize), test.most)
		for _, p := range all {
			got, err := decodeAnnouncement("a.set", "m", p)
			if err != nil {
				t.Fatal(err)
			}
			if got == nil {
				bare++
				continue
			}
			if bare == 0 && got.After != after || len(p) > test.most {
				t.Fatalf("%+v: after %v comes %v to %v in %d bytes", test, after, got.After, got.Cursor, len(p))
			}
			after = got.Cursor
		}
		if len(all) < test.want || bare != test.bare || bare == 0 && after != b.Cursor {
			t.Errorf("%+v: %d announcements, %d of them bare, up to %v", test, len(all), bare, after)
		}
	}
}

func FuzzDecodeAnnouncement(f *testing.F) {
	b := batchAfter(changelog.Cursor{Position: 7, Micros: 1_000}, 10)
	f.Add(encoded("m", appended(b, 1000)))
	f.Add(encoded("m", appended(b, 3)))
	f.Add(encoded("m", changelog.Appended{After: b.After, Cursor: b.Cursor}))
	f.Fuzz(func(t *testing.T, p []byte) {
		got, err := decodeAnnouncement("a.set", "m", p)
		if err != nil || got == nil {
			return
		}
		if n := len(got.Entries); n == 0 || got.Entries[n-1].Cursor != got.Cursor || got.Entries[0].Position != got.After.Position+1 {
			t.Errorf("batch %v to %v with %d entries", got.After, got.Cursor, n)
		}
	})
}

// A tail takes from other hubs only what follows its window.
func TestHear(t *testing.T) {
	start := changelog.Cursor{Position: 7, Micros: 1_000}
	first := batchAfter(start, 3)
	second := batchAfter(first.Cursor, 2)
	lost := batchAfter(changelog.Cursor{Position: second.Cursor.Position, Micros: 5}, 1)
	for _, test := range []struct {
		name  string
		heard []*changelog.Batch
		after changelog.Cursor
		want  int // batches behind after; -1: the memory has to be asked
	}{
		{"the first", []*changelog.Batch{first}, start, 1},
		{"in order", []*changelog.Batch{first, second}, start, 2},
		{"up to date", []*changelog.Batch{first, second}, second.Cursor, 0},
		{"twice", []*changelog.Batch{first, second, second, first}, start, 2},
		{"reordered", []*changelog.Batch{second, first}, start, -1},
		{"of another history", []*changelog.Batch{first, second, lost}, second.Cursor, -1},
		{"not understood", []*changelog.Batch{first, nil}, first.Cursor, -1},
		{"again after a loss", []*changelog.Batch{first, nil, second}, first.Cursor, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			tail := &tail{moved: make(chan struct{})}
			_, _, moved := tail.after(start)
			for _, b := range test.heard {
				tail.hear(b)
			}
			select {
			case <-moved:
			default:
				t.Error("nobody was woken")
			}
			batches, ok, _ := tail.after(test.after)
			if ok != (test.want >= 0) || ok && len(batches) != test.want {
				t.Errorf("%d batches, known %v, want %d", len(batches), ok, test.want)
			}
		})
	}
}

// The ticker wakes followers only when the memory moved.
func TestCompare(t *testing.T) {
	start := changelog.Cursor{Position: 7, Micros: 1_000}
	b := batchAfter(start, 1)
	lost := &tail{moved: make(chan struct{})}
	_, _, moved := lost.after(start)
	lost.compare(changelog.Cursor{}) // the set is not there any more
	select {
	case <-moved:
	default:
		t.Error("nobody was woken when the set was lost")
	}
	tail := &tail{moved: make(chan struct{})}
	for _, step := range []struct {
		name  string
		add   *changelog.Batch
		head  changelog.Cursor
		wakes bool
	}{
		{"the first look", nil, start, true},
		{"nothing new", nil, start, false},
		{"announced", b, b.Cursor, false},
		{"not announced", nil, changelog.Cursor{Position: 9, Micros: 2_000}, true},
		{"nothing new again", nil, changelog.Cursor{Position: 9, Micros: 2_000}, false},
		{"lost its tail", nil, b.Cursor, true},
	} {
		if step.add != nil {
			tail.add([]*changelog.Batch{step.add})
		}
		_, _, moved := tail.after(start)
		tail.compare(step.head)
		woken := false
		select {
		case <-moved:
			woken = true
		default:
		}
		if woken != step.wakes {
			t.Errorf("%s: woken %v", step.name, woken)
		}
	}
}
