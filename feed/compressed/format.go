package compressed

import (
	"sync"

	"github.com/rshub/rshub/feed"
)

// The formats of compressed messages. A message is a binary one of a WebSocket: the object
// of feed.JSON as one frame.
var (
	// JSON needs no dictionary.
	JSON = &feed.Format{Name: feed.JSON.Name + "+zstd", Append: feed.JSON.Append, Baseline: feed.JSON.Baseline, Pack: Append}

	// ShortJSON needs the Dictionary, whose Name begins with what stands at the end of the
	// subprotocol. So a client never gets what it cannot read, when a later hub has
	// another dictionary.
	ShortJSON = sync.OnceValue(func() *feed.Format {
		return &feed.Format{Name: JSON.Name + "." + Name()[:8], Append: feed.JSON.Append, Baseline: feed.JSON.Baseline, Pack: AppendWithDictionary}
	})
)

// Messages returns the formats of compressed messages.
func Messages() []*feed.Format { return []*feed.Format{JSON, ShortJSON()} }
