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

func encoded(memory string, b *changelog.Batch, block changelog.Block) []byte {
	return (&announcement{memory: memory, after: b.After, cursor: b.Cursor, block: block}).encode()
}

func TestAnnouncement(t *testing.T) {
	b := batchAfter(changelog.Cursor{Position: 7, Micros: 1_000}, 10)
	block := changelog.MergeBlock(b.Entries)
	other := batchAfter(b.After, 9)
	other.Cursor = b.Cursor
	for _, test := range []struct {
		name string
		in   []byte
		want *changelog.Batch
		ok   bool
	}{
		{"whole", encoded("m", b, block), b, true},
		{"without entries", encoded("m", b, nil), nil, true},
		{"of another memory", encoded("n", b, block), nil, true},
		{"empty", nil, nil, false},
		{"of another version", append([]byte{2}, encoded("m", b, block)[1:]...), nil, false},
		{"cut in the cursor", encoded("m", b, nil)[:6], nil, false},
		{"cut in the block", encoded("m", b, block[:len(block)-1]), nil, false},
		{"with a hole", encoded("m", b, changelog.MergeBlock(other.Entries)), nil, false},
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

func FuzzDecodeAnnouncement(f *testing.F) {
	b := batchAfter(changelog.Cursor{Position: 7, Micros: 1_000}, 10)
	f.Add(encoded("m", b, changelog.MergeBlock(b.Entries)))
	f.Add(encoded("m", b, nil))
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
		{"twice", []*changelog.Batch{first, second, second}, start, -1},
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
