package live

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"hash/maphash"
	"iter"
	"slices"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/packed"
)

// A backlog is the changes of a set that wait for a commit, packed. It takes a third of
// the memory that entries take, so a commit can be large.
type backlog struct {
	chunks [][]byte // the changes, in the order of the log
	bytes  int      // of the chunks and what points into them

	sorted []packedChange // ascending by loc, the newest of each
	fresh  []packedChange // what came since; most often one of each

	scratch []byte
}

// A recent finds some of the fresh changes by loc. So what changes again and again does
// not have to be sorted each time. An index may be wrong, so one serves many backlogs.
type recent struct {
	seed  maphash.Seed
	index [1 << 12]uint32
}

func newRecent() *recent { return &recent{seed: maphash.MakeSeed()} }

// chunkBytes is the size of a chunk, unless a single change is larger.
const chunkBytes = 256 << 10

// A packedChange is an entry: its position and its datetime as varints, then the change as
// packed.AppendChange writes it.
type packedChange struct {
	bytes    []byte
	from, to uint32 // where the loc is in bytes
	key      uint64 // of a fresh change that is being sorted: the bytes of the loc behind those that all have
}

// packedChangeBytes is about what a packedChange takes besides its bytes, in sorted and
// for a moment in another slice.
const packedChangeBytes = 2 * 40

func (p *packedChange) loc() []byte { return p.bytes[p.from:p.to] }

func (p *packedChange) position() uint64 {
	n, _ := binary.Uvarint(p.bytes)
	return n
}

func (p *packedChange) entry(e *feed.Entry) {
	r := packed.NewReader(string(p.bytes))
	*e = feed.Entry{Cursor: feed.Cursor{Position: r.Number(), Micros: r.Signed()}}
	r.Change(&e.Change)
}

// len returns how many changes wait, of how many resources ever.
func (b *backlog) len() int { return len(b.sorted) + len(b.fresh) }

// add takes the next entries of the log. It keeps nothing of them.
func (b *backlog) add(entries []feed.Entry, r *recent) {
	for i := range entries {
		e := &entries[i]
		s := binary.AppendUvarint(b.scratch[:0], e.Position)
		s = binary.AppendVarint(s, e.Micros)
		head := len(s)
		s = packed.AppendChange(s, &e.Change)
		b.scratch = s
		last := len(b.chunks) - 1
		if last < 0 || len(b.chunks[last])+len(s) > cap(b.chunks[last]) {
			b.chunks = append(b.chunks, make([]byte, 0, max(chunkBytes, len(s))))
			last++
			b.bytes += cap(b.chunks[last])
		}
		begin := len(b.chunks[last])
		b.chunks[last] = append(b.chunks[last], s...)
		_, bits := binary.Uvarint(s[head:]) // which fields the change has
		_, size := binary.Uvarint(s[head+bits:])
		from := head + bits + size
		b.put(r, packedChange{b.chunks[last][begin : begin+len(s)], uint32(from), uint32(from + len(e.Change.Loc)), 0})
	}
}

// put adds a change that is newer than all others.
func (b *backlog) put(r *recent, c packedChange) {
	at := &r.index[maphash.Bytes(r.seed, c.loc())%uint64(len(r.index))]
	if i := int(*at); i < len(b.fresh) && bytes.Equal(b.fresh[i].loc(), c.loc()) {
		b.fresh[i] = c
		return
	}
	*at = uint32(len(b.fresh))
	b.fresh = append(b.fresh, c)
	b.bytes += packedChangeBytes
}

// order sorts what came since it was called before, and returns the number of
// resources.
func (b *backlog) order() int {
	if len(b.fresh) == 0 {
		return len(b.sorted)
	}
	b.key()
	slices.SortFunc(b.fresh, compare)
	merged := make([]packedChange, 0, len(b.sorted)+len(b.fresh))
	old := b.sorted
	for i := range b.fresh {
		f := &b.fresh[i]
		if i+1 < len(b.fresh) && bytes.Equal(f.loc(), b.fresh[i+1].loc()) {
			continue // there is a newer one
		}
		c := -1
		for len(old) > 0 {
			if c = bytes.Compare(old[0].loc(), f.loc()); c >= 0 {
				break
			}
			merged, old = append(merged, old[0]), old[1:]
		}
		if len(old) > 0 && c == 0 {
			old = old[1:]
		}
		merged = append(merged, *f)
	}
	b.sorted, b.fresh = append(merged, old...), b.fresh[:0]
	return len(b.sorted)
}

// key gives each of the fresh changes its key.
func (b *backlog) key() {
	first := b.fresh[0].loc()
	shared := len(first) // bytes that all locs begin with
	for i := range b.fresh {
		loc := b.fresh[i].loc()
		shared = min(shared, len(loc))
		for !bytes.Equal(loc[:shared], first[:shared]) {
			shared--
		}
	}
	for i := range b.fresh {
		var head [8]byte
		copy(head[:], b.fresh[i].loc()[shared:])
		b.fresh[i].key = binary.BigEndian.Uint64(head[:])
	}
}

// compare compares two fresh changes by loc, then by position. Most pairs differ in their
// keys, so that it does not have to look at their bytes, which lie anywhere in memory.
func compare(x, y packedChange) int {
	if c := cmp.Compare(x.key, y.key); c != 0 {
		return c
	}
	if c := bytes.Compare(x.loc(), y.loc()); c != 0 {
		return c
	}
	return cmp.Compare(x.position(), y.position())
}

// locs yields the locs of the resources, ascending. order was called.
func (b *backlog) locs() iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range b.sorted {
			if !yield(string(b.sorted[i].loc())) {
				return
			}
		}
	}
}

// entries yields the newest entry of each resource, ascending by loc. An entry is to be
// read only until the next one is asked for. order was called.
func (b *backlog) entries() iter.Seq[*feed.Entry] {
	return func(yield func(*feed.Entry) bool) {
		var e feed.Entry
		for i := range b.sorted {
			b.sorted[i].entry(&e)
			if !yield(&e) {
				return
			}
		}
	}
}
