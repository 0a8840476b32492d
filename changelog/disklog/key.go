package disklog

import (
	"encoding/binary"
	"encoding/json"
	"fmt"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
)

// Layout of the store. Numbers are eight bytes, big endian.
//
//	meta/format                  formatVersion
//	meta/id                      the identity
//	meta/clock                   changelog.Clock: At, then Doubted
//	set/<set>                    record, as JSON
//	tip/<set>                    tip
//	was/<set>                    after Delete: changelog.Tombstone: End, then Latest if it is later
//	log/<set>/<last position>    datetime of the last entry, then the block
//	key/<set>/<key>              receipt
//	age/<set>/<number>           datetime of the key's publish, then the key
//	inv/<set>                    inventoryRecord: begin of the log, 1, term of the writer, then the head;
//	                             see inventory.Record
//	page/<set>/<number>          a page of the set's inventory
//	keep/<name>/<key>            value of a key in a Bucket
//
// The name of a set has no slash, so all keys that start with log/<set>/ belong to that set.
const formatVersion = "1"

var (
	formatKey = []byte("meta/format")
	idKey     = []byte("meta/id")
	clockKey  = []byte("meta/clock")
)

func setKey(set string) []byte       { return []byte("set/" + set) }
func tipKey(set string) []byte       { return []byte("tip/" + set) }
func tombstoneKey(set string) []byte { return []byte("was/" + set) }
func invKey(set string) []byte       { return []byte("inv/" + set) }

func logKey(set string, last uint64) []byte   { return numberedKey("log/", set, last) }
func ageKey(set string, number uint64) []byte { return numberedKey("age/", set, number) }
func pageKey(set string, n uint64) []byte     { return numberedKey("page/", set, n) }

func keyKey(set, key string) []byte { return []byte("key/" + set + "/" + key) }

func numberedKey(prefix, set string, n uint64) []byte {
	k := make([]byte, 0, len(prefix)+len(set)+9)
	k = append(append(append(k, prefix...), set...), '/')
	return binary.BigEndian.AppendUint64(k, n)
}

// bounds returns the range [from, to) of the keys of a set under a prefix, which ends with a slash.
func bounds(prefix, set string) (from, to []byte) {
	return []byte(prefix + set + "/"), []byte(prefix + set + "0") // '0' follows '/'
}

// number decodes the number at the end of a key.
func number(key []byte) uint64 { return binary.BigEndian.Uint64(key[len(key)-8:]) }

// A record is the part of a set's state that changes rarely. Its JSON names are a stored format.
type record struct {
	feed.Description
	ListSize    int         `json:"listSize"`
	Begin       int64       `json:"begin"`
	PriorMicros int64       `json:"was,omitempty"` // see feed.State
	Floor       feed.Cursor `json:"floor"`
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

// A tip is the part of a set's state that every append changes.
type tip struct {
	Head, Latest feed.Cursor
	Keys         uint64 // number of idempotency keys ever stored
}

func (t tip) encode() []byte {
	b := appendCursor(appendCursor(make([]byte, 0, 40), t.Head), t.Latest)
	return binary.BigEndian.AppendUint64(b, t.Keys)
}

func decodeTip(b []byte) (tip, error) {
	if len(b) != 40 {
		return tip{}, fmt.Errorf("%w: tip: got %d bytes, want 40", changelog.ErrCorrupt, len(b))
	}
	return tip{decodeCursor(b), decodeCursor(b[16:]), binary.BigEndian.Uint64(b[32:])}, nil
}

func encodeTombstone(l changelog.Tombstone) []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, 16), uint64(l.End))
	if l.Latest > l.End {
		b = binary.BigEndian.AppendUint64(b, uint64(l.Latest))
	}
	return b
}

func decodeTombstone(b []byte) (changelog.Tombstone, error) {
	if len(b) != 8 && len(b) != 16 {
		return changelog.Tombstone{}, fmt.Errorf("%w: record of a deleted set: got %d bytes, want 8 or 16", changelog.ErrCorrupt, len(b))
	}
	upto := int64(binary.BigEndian.Uint64(b))
	return changelog.Tombstone{End: upto, Latest: max(upto, int64(binary.BigEndian.Uint64(b[len(b)-8:])))}, nil
}

// A receipt is the stored result of a publish with an idempotency key.
type receipt struct {
	Number        uint64      // number of the key in its set, from 1
	Hash          [32]byte    // hash of the publish
	After, Cursor feed.Cursor // cursor before its first entry, and cursor of its last entry
}

func (r receipt) encode() []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, 72), r.Number)
	b = append(b, r.Hash[:]...)
	return appendCursor(appendCursor(b, r.After), r.Cursor)
}

func decodeReceipt(b []byte) (receipt, error) {
	if len(b) != 72 {
		return receipt{}, fmt.Errorf("%w: record of an idempotency key: got %d bytes, want 72", changelog.ErrCorrupt, len(b))
	}
	return receipt{binary.BigEndian.Uint64(b), [32]byte(b[8:40]), decodeCursor(b[40:]), decodeCursor(b[56:])}, nil
}

func appendCursor(b []byte, c feed.Cursor) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(b, c.Position), uint64(c.Micros))
}

func decodeCursor(b []byte) feed.Cursor {
	return feed.Cursor{Position: binary.BigEndian.Uint64(b), Micros: int64(binary.BigEndian.Uint64(b[8:]))}
}
