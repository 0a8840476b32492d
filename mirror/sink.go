package mirror

import (
	"context"
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
