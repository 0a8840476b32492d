package relay

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/rshub/rshub/resourcesync"
)

const (
	overlap   = time.Hour // overlap of two readings of Change Lists, because a source may add a change late
	maxRecent = 20_000    // maximum number of changes that a Mark remembers; twice as many if they have the same datetime
)

// undated is the datetime of a change without a known datetime, which is always recent.
var undated = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// A Mark records which changes of a source were already published.
type Mark struct {
	Begin    time.Time            `json:"begin"`            // no earlier change is read: everything was compared as of then, or too many changes came since to remember them
	Datetime time.Time            `json:"datetime"`         // datetime of the newest published change; zero means none
	Until    time.Time            `json:"until,omitzero"`   // all changes up to then were read; zero means that the lists do not say
	Recent   map[string]time.Time `json:"recent,omitempty"` // published changes of the overlap, by a hash; if empty, all changes after Datetime are new

	seenTimes map[string]int // how often the current reading has had exactly this entry of Recent
}

// since returns the datetime from which the source must be read.
func (m *Mark) since() time.Time {
	if len(m.Recent) == 0 || m.Datetime.IsZero() {
		return m.Datetime
	}
	if from := m.Datetime.Add(-overlap); from.After(m.Begin) {
		return from
	}
	return m.Begin
}

// next returns the Mark for the next reading, which adds what it reads. It retains the changes of
// the overlap, in case that reading lacks them but a later one has them again. It retains no
// undated change: those are known only as long as each reading has them.
func (m *Mark) next() Mark {
	recent := maps.Clone(m.Recent)
	maps.DeleteFunc(recent, func(_ string, at time.Time) bool { return at.Equal(undated) })
	if recent == nil {
		recent = map[string]time.Time{}
	}
	return Mark{Begin: m.Begin, Datetime: m.Datetime, Recent: recent}
}

// changeKey returns a hash that identifies a change. The datetime alone does not: with whole
// seconds, two changes of a resource may have the same one.
func changeKey(c *resourcesync.Change) string {
	length := int64(-1)
	if c.Length != nil {
		length = *c.Length
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s\n%s\n%d\n%s",
		c.Loc, c.Change, c.Datetime.Format(time.RFC3339Nano), c.Hash, length, c.Lastmod.Format(time.RFC3339Nano)))
	return base64.RawURLEncoding.EncodeToString(sum[:12])
}

// add adds a change from a reading that started at since, and returns its key.
func (m *Mark) add(c *resourcesync.Change, since time.Time) (key string) {
	key = changeKey(c)
	if c.Datetime.After(m.Datetime) {
		if m.Datetime = c.Datetime; m.Recent == nil {
			m.Begin, m.Recent = m.Datetime, map[string]time.Time{}
		}
	}
	if m.Recent == nil {
		return key
	}
	if m.seenTimes == nil {
		m.seenTimes = map[string]int{}
	}
	if m.seenTimes[key]++; m.seenTimes[key] > 1 { // within one datetime, the resource returned to an earlier state
		key = fmt.Sprintf("%s-%d", key, m.seenTimes[key])
	}
	at := c.Datetime
	if at.Before(since) {
		at = undated // its datetime is unknown, so it is recent as long as the list has it
	}
	if m.Recent[key] = at; len(m.Recent) > 2*maxRecent {
		m.trim()
	}
	return key
}

// trim forgets changes before the overlap. If there are still too many, it forgets the oldest, and
// if too many have the same datetime, all. A forgotten change is either not read again, or
// published again together with all later changes. Otherwise, an outdated change would be the last
// that the hub receives of its resource.
func (m *Mark) trim() {
	defer maps.DeleteFunc(m.seenTimes, func(key string, _ int) bool {
		_, recent := m.Recent[key]
		return !recent
	})
	for key, at := range m.Recent {
		if at.Before(m.Datetime.Add(-overlap)) {
			delete(m.Recent, key)
		}
	}
	if len(m.Recent) <= maxRecent {
		return
	}
	newest := slices.SortedFunc(maps.Values(m.Recent), func(a, b time.Time) int { return b.Compare(a) })
	least := newest[maxRecent-1]
	if least.After(m.Datetime) { // these are undated
		least = m.Datetime
	}
	if least.After(m.Begin) {
		m.Begin = least
	}
	for key, at := range m.Recent {
		if at.Before(m.Begin) {
			delete(m.Recent, key)
		}
	}
	if len(m.Recent) > 2*maxRecent {
		m.Recent = nil
	}
}
