package redislog

import (
	"fmt"
	"strconv"

	"github.com/rshub/rshub/changelog"
)

// Redis holds, behind the prefix and a colon; a cursor is written as its text:
//
//	memory             hash: format, id; checked by Check
//	sets               set: the names of all sets that there are or were
//	{<set>}:set        hash: memory (the identity), size, title, describedby, begin,
//	                   floor, head, latest, known (how many keys were ever kept),
//	                   packed (the last position in the stream packed), turned
//	{<set>}:packed     stream: the older blocks, merged where they were small
//	{<set>}:live       stream: the newer blocks, as they came
//	{<set>}:known      hash: publishes by idempotency key, see lib.lua
//	{<set>}:ages       list: number, datetime and key of those, oldest first
//	{<set>}:calls      hash: answers to appends by the id of the call, see lib.lua
//	{<set>}:called     the same, older
//	{<set>}:was        after Delete: the head's datetime
//
// A block's ID in its stream is the cursor of its last entry. The braces make all
// keys of a set live in one slot of a cluster. A prefix has no brace, and no
// word above is another with something before it and a colon, so two prefixes
// never have a key in common.
const formatVersion = "1"

// checkPrefix returns nil when a prefix can begin all keys.
func checkPrefix(prefix string) error {
	ok := len(prefix) >= 1 && len(prefix) <= 64
	for i := 0; ok && i < len(prefix); i++ {
		c := prefix[i]
		ok = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-' || c == ':'
	}
	if ok {
		return nil
	}
	return fmt.Errorf("%q cannot begin the keys in Redis: a prefix is 1 to 64 letters, digits, dots, hyphens, underscores and colons", prefix)
}

func (l *Log) memoryKey() string { return l.opts.Prefix + ":memory" }
func (l *Log) setsKey() string   { return l.opts.Prefix + ":sets" }

// setKey is the first of a set's keys.
func (l *Log) setKey(set string) string { return l.opts.Prefix + ":{" + set + "}:set" }

// keys returns the keys of a set, in the order of lib.lua.
func (l *Log) keys(set string) []string {
	p := l.opts.Prefix + ":{" + set + "}:"
	return []string{p + "set", p + "packed", p + "live", p + "known", p + "ages", p + "calls", p + "called", p + "was"}
}

// stateFields are what a State is read from.
var stateFields = []string{"memory", "size", "title", "describedby", "begin", "floor", "head", "latest"}

// decodeState reads the stateFields of a set.
func (l *Log) decodeState(set string, values []any) (changelog.State, error) {
	s := changelog.State{Set: set}
	if len(values) != len(stateFields) || values[0] == nil {
		return s, changelog.ErrNoSet
	}
	v := make([]string, len(values))
	for i := range values {
		v[i], _ = values[i].(string)
	}
	if v[0] != l.id {
		return s, l.other(v[0])
	}
	var errs [5]error
	s.ListSize, errs[0] = strconv.Atoi(v[1])
	s.Title, s.DescribedBy = v[2], v[3]
	s.Begin, errs[1] = strconv.ParseInt(v[4], 10, 64)
	s.Floor, errs[2] = changelog.ParseCursor(v[5])
	s.Head, errs[3] = changelog.ParseCursor(v[6])
	s.Latest, errs[4] = changelog.ParseCursor(v[7])
	for _, err := range errs {
		if err != nil {
			return s, fmt.Errorf("%w: its state: %v", changelog.ErrCorrupt, err)
		}
	}
	if s.ListSize < 1 {
		return s, fmt.Errorf("%w: list size %d", changelog.ErrCorrupt, s.ListSize)
	}
	l.saw(s.Head)
	return s, nil
}
