package relay

import (
	"fmt"
	"testing"
	"time"

	"github.com/rshub/rshub/resourcesync"
)

// If many changes come within an hour, or have the same datetime, the next poll publishes none of
// them without all later ones. Otherwise the hub would revert to an outdated state.
func TestMarkOfManyChanges(t *testing.T) {
	begin := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		n     int
		step  time.Duration
		again int // number of changes that the next poll publishes again
	}{
		"few":                  {100, time.Second, 0},
		"many":                 {3 * maxRecent, 50 * time.Millisecond, 0},
		"many of one datetime": {2*maxRecent - 1, 0, 0},
		"more of one datetime": {5 * maxRecent, 0, 5*maxRecent + 1},
	} {
		t.Run(name, func(t *testing.T) {
			var changes []resourcesync.Change
			for i := range test.n {
				changes = append(changes, resourcesync.Change{Loc: fmt.Sprint("https://a.example/", i), Change: resourcesync.Created, Datetime: begin.Add(time.Duration(i) * test.step)})
			}
			last := changes[0] // the first resource is deleted again
			last.Change, last.Datetime = resourcesync.Deleted, changes[test.n-1].Datetime
			changes = append(changes, last)
			m := Mark{Recent: map[string]time.Time{}}
			for i := range changes {
				m.add(&changes[i], time.Time{})
			}
			m.trim()
			if len(m.Recent) > 2*maxRecent {
				t.Errorf("Mark remembers %d changes", len(m.Recent))
			}
			again, deleted := 0, false
			for i := range changes {
				if _, had := m.Recent[changeKey(&changes[i])]; !had && !changes[i].Datetime.Before(m.since()) {
					again++
					deleted = changes[i].Change == resourcesync.Deleted
				}
			}
			if again != test.again || again > 0 && !deleted {
				t.Errorf("got %d changes again, with the last deletion: %v", again, deleted)
			}
		})
	}
}
