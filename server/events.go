package server

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/cloudevents"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/hub"
	"github.com/rshub/rshub/resourcesync"
)

// readEvents returns what reads CloudEvents that are published to a set, as the set's
// description says.
func readEvents(log changelog.Log) hub.Reader {
	return func(ctx context.Context, set string, body io.Reader, l resourcesync.Limits) ([]resourcesync.Change, error) {
		state, err := log.State(ctx, set)
		if err != nil && !errors.Is(err, feed.ErrNoSet) { // a set that the publish makes has no mapping
			return nil, fmt.Errorf("state of set %q: %w", set, err)
		}
		mapping, err := cloudevents.ParseMapping([]byte(state.Events))
		if err != nil {
			return nil, resourcesync.About("the mapping of the set", err)
		}
		return cloudevents.Read(body, mapping, l)
	}
}
