package mirror

import (
	"context"
	"fmt"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// A Sink takes what a source says of its resources.
type Sink interface {
	// Apply does what the entries say, in their order: a resource was created or updated,
	// or was deleted. It blocks until that is done, or is kept so that Retry will do it. If
	// it returns an error, the entries come again. Entries may also come again after a
	// crash, or because the source says the same in another way; they do no harm then.
	Apply(ctx context.Context, entries []feed.Entry) error

	// Retry does what Apply kept and what is due by now; everything that Apply kept, if
	// all is set. It says what is left. Apply may be called meanwhile.
	Retry(ctx context.Context, all bool) (Left, error)
}

// A Left is what a Sink still has to do.
type Left struct {
	Resources int64
	Next      time.Time // when something is due; zero: there is nothing left
}

// A TooMany means that more resources would be deleted than is allowed. None of those in
// question is.
type TooMany struct {
	Deleted int64 // within the last day
	More    int64 // that are to be deleted
	Held    int64 // that the mirror had a day ago, or when the first was deleted
}

func (t *TooMany) Error() string {
	return fmt.Sprintf("%d resources would be deleted, after %d within a day, of %d", t.More, t.Deleted, t.Held)
}

// newest returns of each resource its last entry: what to get, and what to remove.
func newest(entries []feed.Entry) (wanted, gone []feed.Entry) {
	last := make(map[string]int, len(entries))
	for i := range entries {
		last[entries[i].Change.Loc] = i
	}
	for i := range entries {
		switch {
		case last[entries[i].Change.Loc] != i:
		case entries[i].Change.Change == resourcesync.Deleted:
			gone = append(gone, entries[i])
		default:
			wanted = append(wanted, entries[i])
		}
	}
	return wanted, gone
}
