package live

import (
	"cmp"
	"encoding/binary"
	"iter"
	"slices"
	"strings"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/packed"
)

// A backlog holds the changes of a set that wait for a commit, the newest of each
// resource. It packs them into a third of the memory of entries, so that a commit can be
// large.
type backlog struct {
	newest map[string]string // the packed change of each loc
	sorted []packedChange    // the same, ascending by loc; nil: not sorted since the last add
	bytes  int               // about the memory of all this

	scratch []byte
}

// A packedChange is an entry. The text has its position and its datetime as varints, then
// the change without its loc as packed.AppendChange writes it.
type packedChange struct {
	loc, text string
	key       uint64 // the first bytes of the loc after the prefix of all locs, to sort by
}

// packedBytes is about the memory of a change without its loc and its text.
const packedBytes = 90

// add adds the next entries of the log. It keeps no reference to them.
func (b *backlog) add(entries []feed.Entry) {
	if b.newest == nil {
		b.newest = map[string]string{}
	}
	b.sorted = nil
	for i := range entries {
		e := &entries[i]
		rest := e.Change
		rest.Loc = ""
		s := append(b.scratch[:0], e.Change.Loc...)
		s = binary.AppendUvarint(s, e.Position)
		s = binary.AppendVarint(s, e.Micros)
		s = packed.AppendChange(s, &rest)
		b.scratch = s
		both, n := string(s), len(e.Change.Loc) // both in one allocation
		if old, had := b.newest[both[:n]]; had {
			b.bytes -= len(old)
		} else {
			b.bytes += packedBytes + n
		}
		b.newest[both[:n]] = both[n:]
		b.bytes += len(both) - n
	}
}

// len returns how many resources have a change that waits.
func (b *backlog) len() int { return len(b.newest) }

// order returns the changes, ascending by loc.
func (b *backlog) order() []packedChange {
	if b.sorted != nil {
		return b.sorted
	}
	b.sorted = make([]packedChange, 0, len(b.newest))
	shared := -1 // bytes that all locs begin with
	for loc, text := range b.newest {
		b.sorted = append(b.sorted, packedChange{loc: loc, text: text})
		if shared < 0 {
			shared = len(loc)
		}
		for shared = min(shared, len(loc)); loc[:shared] != b.sorted[0].loc[:shared]; shared-- {
		}
	}
	for i := range b.sorted {
		var head [8]byte
		copy(head[:], b.sorted[i].loc[shared:])
		b.sorted[i].key = binary.BigEndian.Uint64(head[:])
	}
	slices.SortFunc(b.sorted, func(x, y packedChange) int {
		if x.key != y.key { // the usual case, which needs no access to the locs
			return cmp.Compare(x.key, y.key)
		}
		return strings.Compare(x.loc, y.loc)
	})
	return b.sorted
}

// locs yields the locs of the resources, ascending.
func (b *backlog) locs() iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, c := range b.order() {
			if !yield(c.loc) {
				return
			}
		}
	}
}

// entries yields the newest entry of each resource, ascending by loc. An entry is valid
// only until the next one is asked for.
func (b *backlog) entries() iter.Seq[*feed.Entry] {
	return func(yield func(*feed.Entry) bool) {
		var e feed.Entry
		for _, c := range b.order() {
			r := packed.NewReader(c.text)
			e = feed.Entry{Cursor: feed.Cursor{Position: r.Number(), Micros: r.Signed()}}
			r.Change(&e.Change)
			e.Change.Loc = c.loc
			if !yield(&e) {
				return
			}
		}
	}
}
