package disklog

import (
	"encoding/binary"
	"encoding/json"
	"fmt"

	"github.com/rshub/rshub/changelog"
)

// The store holds, numbers in eight bytes big endian:
//
//	meta/format                  formatVersion, until a copy is finished formatUnfinished
//	meta/id                      the identity
//	set/<set>                    record, as JSON
//	tip/<set>                    tip
//	was/<set>                    after Delete: the head's datetime
//	log/<set>/<last position>    the last entry's datetime, then the block
//	key/<set>/<key>              known
//	age/<set>/<number>           the datetime of the key's publish, then the key
//	keep/<name>/<key>            what else the hub keeps, see Keep
//
// A set's name has no slash, so what begins with log/<set>/ is that set's.
const (
	formatVersion    = "1"
	formatUnfinished = "unfinished copy"
)

var (
	formatKey = []byte("meta/format")
	idKey     = []byte("meta/id")
)

func setKey(set string) []byte { return []byte("set/" + set) }
func tipKey(set string) []byte { return []byte("tip/" + set) }
func wasKey(set string) []byte { return []byte("was/" + set) }

func logKey(set string, last uint64) []byte   { return numbered("log/", set, last) }
func ageKey(set string, number uint64) []byte { return numbered("age/", set, number) }

func keyKey(set, key string) []byte { return []byte("key/" + set + "/" + key) }

func numbered(prefix, set string, n uint64) []byte {
	k := make([]byte, 0, len(prefix)+len(set)+9)
	k = append(append(append(k, prefix...), set...), '/')
	return binary.BigEndian.AppendUint64(k, n)
}

// bounds returns the range of the keys under prefix/<set>/.
func bounds(prefix, set string) (from, to []byte) {
	return []byte(prefix + set + "/"), []byte(prefix + set + "0") // '0' follows '/'
}

// number returns the number at the end of a key.
func number(key []byte) uint64 { return binary.BigEndian.Uint64(key[len(key)-8:]) }

// A record is what seldom changes of a set.
type record struct {
	changelog.Description
	ListSize int              `json:"listSize"`
	Begin    int64            `json:"begin"`
	Floor    changelog.Cursor `json:"floor"`
}

func (r record) encode() []byte {
	b, _ := json.Marshal(r) // strings and numbers only
	return b
}

func decodeRecord(b []byte) (record, error) {
	var r record
	if err := json.Unmarshal(b, &r); err != nil {
		return r, fmt.Errorf("%w: %w", changelog.ErrCorrupt, err)
	}
	if r.ListSize < 1 {
		return r, fmt.Errorf("%w: list size %d", changelog.ErrCorrupt, r.ListSize)
	}
	return r, nil
}

// A tip is what every append changes of a set.
type tip struct {
	Head, Latest changelog.Cursor
	Keys         uint64 // how many idempotency keys were ever kept
}

func (t tip) encode() []byte {
	b := appendCursor(appendCursor(make([]byte, 0, 40), t.Head), t.Latest)
	return binary.BigEndian.AppendUint64(b, t.Keys)
}

func decodeTip(b []byte) (tip, error) {
	if len(b) != 40 {
		return tip{}, fmt.Errorf("%w: a tip of %d bytes", changelog.ErrCorrupt, len(b))
	}
	return tip{decodeCursor(b), decodeCursor(b[16:]), binary.BigEndian.Uint64(b[32:])}, nil
}

// A known is a publish that is remembered by its idempotency key.
type known struct {
	Number        uint64 // counts the set's keys
	Hash          [32]byte
	After, Cursor changelog.Cursor
}

func (k known) encode() []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, 72), k.Number)
	b = append(b, k.Hash[:]...)
	return appendCursor(appendCursor(b, k.After), k.Cursor)
}

func decodeKnown(b []byte) (known, error) {
	if len(b) != 72 {
		return known{}, fmt.Errorf("%w: an idempotency record of %d bytes", changelog.ErrCorrupt, len(b))
	}
	return known{binary.BigEndian.Uint64(b), [32]byte(b[8:40]), decodeCursor(b[40:]), decodeCursor(b[56:])}, nil
}

func appendCursor(b []byte, c changelog.Cursor) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(b, c.Position), uint64(c.Micros))
}

func decodeCursor(b []byte) changelog.Cursor {
	return changelog.Cursor{Position: binary.BigEndian.Uint64(b), Micros: int64(binary.BigEndian.Uint64(b[8:]))}
}
