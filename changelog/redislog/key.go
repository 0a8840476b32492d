package redislog

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/rshub/rshub/changelog"
)

// Redis holds, behind the prefix and a colon; a cursor is written as its text:
//
//	memory             hash: format, until a copy is finished formatUnfinished; id;
//	                   checked by Check; run by copies
//	sets               hash: by the names of all sets that there are or were, nothing
//	{<set>}:set        hash: memory (the identity), size, title, describedby,
//	                   changelist, begin, log (what steps change); run by copies
//	{<set>}:packed     hash: the older blocks by number, merged where they were small
//	{<set>}:live       hash: the newer blocks by number, as they came
//	{<set>}:known      hash: publishes that had an idempotency key, by number
//	{<set>}:numbers    hash: their numbers by key
//	{<set>}:calls0     hash: answers to appends by the id of the call
//	{<set>}:calls1     the same; they take turns
//
// The log of a set is the cursors floor, head, latest and that of the last packed
// entry; of the packed blocks the numbers of the first that is not removed, of the
// first and of the last, and the same of the live ones; the number of the newest
// key and of the newest that was forgotten; how often calls took turns, and when
// last; a comma, the id of the newest call, a comma, and its answer. After Delete
// it is the word deleted and the head's datetime. lib.lua says why it is so.
//
// The braces make all keys of a set live in one slot of a cluster. A prefix has no
// brace, and no word above is another with something before it and a colon, so two
// prefixes never have a key in common.
const (
	formatVersion    = "1"
	formatUnfinished = "unfinished copy"
)

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
	return []string{p + "set", p + "packed", p + "live", p + "known", p + "numbers", p + "calls0", p + "calls1"}
}

// stateFields are what a State is read from.
var stateFields = []string{"memory", "size", "title", "describedby", "changelist", "begin", "log"}

// decodeState reads the stateFields of a set.
func (l *Log) decodeState(set string, values []any) (changelog.State, error) {
	s := changelog.State{Set: set}
	if len(values) != len(stateFields) {
		return s, changelog.ErrNoSet
	}
	v := make([]string, len(values))
	for i := range values {
		v[i], _ = values[i].(string)
	}
	log := strings.Fields(v[6])
	if len(log) == 0 || log[0] == "deleted" {
		return s, changelog.ErrNoSet
	}
	if v[0] != l.ID() {
		return s, l.other(v[0])
	}
	if len(log) < 3 {
		return s, fmt.Errorf("%w: its log is %q", changelog.ErrCorrupt, v[6])
	}
	var errs [5]error
	s.ListSize, errs[0] = strconv.Atoi(v[1])
	s.Title, s.DescribedBy, s.ChangeList = v[2], v[3], v[4]
	s.Begin, errs[1] = strconv.ParseInt(v[5], 10, 64)
	s.Floor, errs[2] = changelog.ParseCursor(log[0])
	s.Head, errs[3] = changelog.ParseCursor(log[1])
	s.Latest, errs[4] = changelog.ParseCursor(log[2])
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
