package ledger

import (
	"encoding/json"
	"fmt"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// A change is the stored form of an entry within a record.
type change struct {
	Position uint64          `json:"position,omitempty"`
	Micros   int64           `json:"micros,omitempty"`
	Change   json.RawMessage `json:"change"`
}

func pack(e *feed.Entry) change {
	members := resourcesync.AppendJSONMembers([]byte{'{'}, &e.Change)
	return change{e.Position, e.Micros, append(members, '}')}
}

func (c *change) unpack() (feed.Entry, error) {
	parsed, err := resourcesync.ParseChange(c.Change)
	if err != nil {
		return feed.Entry{}, err
	}
	return feed.Entry{Cursor: feed.Cursor{Position: c.Position, Micros: c.Micros}, Change: *parsed}, nil
}

// The stored form of the records: the public types, and their entries.
type (
	fileRecord struct {
		File
		change
	}
	failureRecord struct {
		Failure
		change
	}
	listedRecord struct {
		Look uint64 `json:"look"`
		change
	}
)

func readFile(loc string, v []byte) (File, error) {
	var r fileRecord
	err := json.Unmarshal(v, &r)
	if err == nil {
		r.File.Loc = loc
		r.Entry, err = r.unpack()
	}
	return r.File, damaged(loc, err)
}

func readFailure(loc string, v []byte) (Failure, error) {
	var r failureRecord
	err := json.Unmarshal(v, &r)
	if err == nil {
		r.Failure.Loc = loc
		r.Entry, err = r.unpack()
	}
	return r.Failure, damaged(loc, err)
}

// A Listed is a resource that a source without a hub lists.
type Listed struct {
	Entry feed.Entry
	Look  uint64 // the number of the look at all resources that found it; 0: a change named it
}

func readListed(loc string, v []byte) (Listed, error) {
	var r listedRecord
	err := json.Unmarshal(v, &r)
	var l Listed
	if err == nil {
		l.Look = r.Look
		l.Entry, err = r.unpack()
	}
	return l, damaged(loc, err)
}

func damaged(loc string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("the ledger is damaged at %s: %w", resourcesync.Shorten(loc), err)
}
