package redislog

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
)

// Layout of the keys in Redis, after the prefix and a colon. A cursor is stored as its string.
//
//	memory             hash: format, which is formatUnfinished until a copy is finished; id;
//	                   checked, written by Check; run, written by copies; clock and
//	                   doubted, written by Tick; secret, and the run of the server that
//	                   it belongs to, see memory.lua
//	sets               hash: a field without a value for each set that exists or existed
//	requests           hash: sets with inventories that readers need newer roots of; 1 if
//	                   a reader has found damage
//	{<set>}:set        hash: memory (the identity), size, title, describedby,
//	                   changelist, begin, log (the part that steps change); described
//	                   (the id of the call that wrote the description), was (PriorMicros
//	                   of feed.State; it may be earlier than begin), left; run, written
//	                   by copies; more: the begin of the log, then the result of
//	                   encodeMore; inventory: the record of the inventory, see below
//	{<set>}:packed     hash: the older blocks by number, merged if they were small
//	{<set>}:live       hash: the newer blocks by number, as appended
//	{<set>}:known      hash: publishes that had an idempotency key, by number
//	{<set>}:numbers    hash: their numbers by key
//	{<set>}:calls0     hash: answers to appends by the id of the call
//	{<set>}:calls1     the same; see turn in lib.lua
//	{<set>}:page0      hash: pages of the set's inventory by number. Page n is in
//	   … page63        hash pageHash(n) of the pageHashes hashes
//
// The field log of a set has, in this order:
//
//   - the cursors floor, head, latest, and the cursor of the last packed entry;
//   - three numbers of packed blocks: of the first that is not removed, of the first
//     that is in use, and of the last; then the same three of the live blocks;
//   - the number of the newest key, and of the newest key that was removed;
//   - the number of times that the hashes of calls took turns, and the time of the last;
//   - a comma, the id of the newest call, a comma, and the answer to that call.
//
// After Delete, the field has the word deleted and the datetime after which a new set must
// start. If entries had later datetimes, the field left has that datetime, a hyphen, and the
// latest of them. lib.lua gives the reasons for this layout.
//
// The record of an inventory is one string: the begin of the log that it belongs to, its
// version, the term of the writer, the run of the server in which it wrote, and the head;
// see inventory.Record. If a hub is killed while it deletes a set, the record and the
// pages stay. So a record whose begin differs from the log's is ignored.
//
// The braces put all keys of a set into one slot of a cluster. Two prefixes never have a key
// in common, although a prefix may contain colons: a prefix has no brace, and none of the
// names above ends in a colon and another of the names.
const (
	formatVersion    = "1"
	formatUnfinished = "unfinished copy"
)

// checkPrefix returns an error if the prefix is not allowed.
func checkPrefix(prefix string) error {
	ok := len(prefix) >= 1 && len(prefix) <= 64
	for i := 0; ok && i < len(prefix); i++ {
		c := prefix[i]
		ok = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-' || c == ':'
	}
	if ok {
		return nil
	}
	return fmt.Errorf("prefix of the keys in Redis: got %q, want 1 to 64 letters, digits, dots, hyphens, underscores and colons", prefix)
}

func (l *Log) memoryKey() string   { return l.opts.Prefix + ":memory" }
func (l *Log) setsKey() string     { return l.opts.Prefix + ":sets" }
func (l *Log) requestsKey() string { return l.opts.Prefix + ":requests" }

// setKey returns the first key of a set.
func (l *Log) setKey(set string) string { return l.opts.Prefix + ":{" + set + "}:set" }

// keys returns the keys of a set, without the pages, in the order that lib.lua expects.
func (l *Log) keys(set string) []string {
	p := l.opts.Prefix + ":{" + set + "}:"
	return []string{p + "set", p + "packed", p + "live", p + "known", p + "numbers", p + "calls0", p + "calls1"}
}

// pageHashes is the number of hashes for the pages of a set. A hash of more than 512 MB could not
// be moved to another server of a cluster.
const pageHashes = 64

// pageHash returns the number of the hash of a page. Pages that are written and read together are
// in one hash or a few.
func pageHash(n uint64) int { return int(n / 64 % pageHashes) }

// pageKey returns the key of a hash of pages.
func (l *Log) pageKey(set string, hash int) string {
	return l.opts.Prefix + ":{" + set + "}:page" + strconv.Itoa(hash)
}

// pageKeys returns the keys of all hashes of pages of a set.
func (l *Log) pageKeys(set string) []string {
	keys := make([]string, pageHashes)
	for h := range keys {
		keys[h] = l.pageKey(set, h)
	}
	return keys
}

// allKeys returns all keys of a set: first the ones that lib.lua expects, then the pages.
func (l *Log) allKeys(set string) []string { return append(l.keys(set), l.pageKeys(set)...) }

// stateFields are the fields of a set's hash that decodeState needs.
var stateFields = []string{"memory", "size", "title", "describedby", "changelist", "begin", "log", "was", "more"}

// decodeState decodes the values of stateFields. The error is feed.ErrNoSet if the set does not
// exist.
func (l *Log) decodeState(set string, values []any) (feed.State, error) {
	s := feed.State{Set: set}
	if len(values) != len(stateFields) {
		return s, feed.ErrNoSet
	}
	v := make([]string, len(values))
	for i := range values {
		v[i], _ = values[i].(string)
	}
	log := strings.Fields(v[6])
	if len(log) == 0 || log[0] == "deleted" {
		return s, feed.ErrNoSet
	}
	if v[0] != l.ID() {
		return s, l.otherMemory(v[0])
	}
	if len(log) < 3 {
		return s, fmt.Errorf("%w: log of the set: got %q", changelog.ErrCorrupt, v[6])
	}
	var errs [6]error
	s.ListSize, errs[0] = strconv.Atoi(v[1])
	s.Title, s.DescribedBy, s.ChangeList = v[2], v[3], v[4]
	s.Begin, errs[1] = strconv.ParseInt(v[5], 10, 64)
	s.Floor, errs[2] = feed.ParseCursor(log[0])
	s.Head, errs[3] = feed.ParseCursor(log[1])
	s.BeforeLatest, errs[4] = feed.ParseCursor(log[2])
	if was, err := strconv.ParseInt(v[7], 10, 64); err == nil && was >= s.Begin {
		s.PriorMicros = was
	}
	// Older programs do not know this field, and leave it unchanged when they create a set again.
	if begin, more, _ := strings.Cut(v[8], " "); begin == v[5] {
		errs[5] = decodeMore(more, &s.Description)
	}
	for _, err := range errs {
		if err != nil {
			return s, fmt.Errorf("%w: state of the set: %v", changelog.ErrCorrupt, err)
		}
	}
	if s.ListSize < 1 {
		return s, fmt.Errorf("%w: list size %d", changelog.ErrCorrupt, s.ListSize)
	}
	return s, nil
}

// encodeMore returns the content of the field more: the part of a description that has no field of
// its own, as JSON, or "". Older programs leave the field unchanged when they describe a set.
func encodeMore(d feed.Description) string {
	d.Title, d.DescribedBy, d.ChangeList = "", "", ""
	if d == (feed.Description{}) {
		return ""
	}
	b, _ := json.Marshal(d) // strings, booleans and a number
	return string(b)
}

// decodeMore decodes the result of encodeMore into d.
func decodeMore(text string, d *feed.Description) error {
	if text == "" {
		return nil
	}
	more := feed.Description{}
	err := json.Unmarshal([]byte(text), &more)
	more.Title, more.DescribedBy, more.ChangeList = d.Title, d.DescribedBy, d.ChangeList
	*d = more
	return err
}
