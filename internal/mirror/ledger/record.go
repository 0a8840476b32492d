package ledger

import (
	"encoding/json"
	"fmt"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// A storedEntry is the stored form of an entry within a record.
type storedEntry struct {
	Position uint64          `json:"position,omitempty"`
	Micros   int64           `json:"micros,omitempty"`
	Change   json.RawMessage `json:"change"`
}

func storeEntry(e *feed.Entry) storedEntry {
	members := resourcesync.AppendJSONMembers([]byte{'{'}, &e.Change)
	return storedEntry{e.Position, e.Micros, append(members, '}')}
}

func (c *storedEntry) unpack() (feed.Entry, error) {
	parsed, err := resourcesync.ParseChange(c.Change)
	if err != nil {
		return feed.Entry{}, err
	}
	return feed.Entry{Cursor: feed.Cursor{Position: c.Position, Micros: c.Micros}, Change: *parsed}, nil
}

// The stored forms of the records: the exported types with their entries.
type (
	fileRecord struct {
		File
		storedEntry
	}
	failureRecord struct {
		Failure
		storedEntry
	}
	listedRecord struct {
		Look uint64 `json:"look"`
		storedEntry
	}
)

func readFile(loc string, v []byte) (File, error) {
	var r fileRecord
	err := json.Unmarshal(v, &r)
	if err == nil {
		r.File.Loc = loc
		r.Entry, err = r.unpack()
	}
	return r.File, damagedError(loc, err)
}

func readFailure(loc string, v []byte) (Failure, error) {
	var r failureRecord
	err := json.Unmarshal(v, &r)
	if err == nil {
		r.Failure.Loc = loc
		r.Entry, err = r.unpack()
	}
	return r.Failure, damagedError(loc, err)
}

// A ListedResource is a resource that a source without a hub lists.
type ListedResource struct {
	Entry     feed.Entry
	Traversal uint64 // ID of the traversal of the listing that found it; 0 if a change named it
}

func readListed(loc string, v []byte) (ListedResource, error) {
	var r listedRecord
	err := json.Unmarshal(v, &r)
	var l ListedResource
	if err == nil {
		l.Traversal = r.Look
		l.Entry, err = r.unpack()
	}
	return l, damagedError(loc, err)
}

func damagedError(loc string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("ledger is damaged at %s: %w", resourcesync.Shorten(loc), err)
}
