package client

import (
	"context"
	"io"
	"iter"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/inventory/auditor"
)

// AuditState is Audit of an inventory state, with all options of package auditor.
func (c *Client) AuditState(ctx context.Context, set string, own auditor.StateFunc, o auditor.Options) iter.Seq2[Difference, error] {
	return c.auditState(ctx, set, own, o)
}

// A testStore makes a Store of an inventory store.
type testStore struct{ inventory.Store }

func (testStore) Copy(string) error { return nil }
func (testStore) Close() error      { return nil }

// OpenReplicaIn is OpenReplica with an inventory store.
func (c *Client) OpenReplicaIn(ctx context.Context, set string, store inventory.Store, o ReplicaOptions) (*Replica, error) {
	o.Store = testStore{store}
	return c.OpenReplica(ctx, set, o)
}

// ParseMessage parses a message of a hub to FollowAll. It returns the batch or the cursors that the
// message has, and whether it is an error of a set.
func ParseMessage(text string) (b *feed.Batch, cursors map[string]feed.Cursor, failed *feed.Problem, err error) {
	m, err := parseMessage(text)
	return m.batch, m.cursors, m.problem, err
}

// ParseCursorFile parses the text of a CursorFile.
func ParseCursorFile(text []byte) (cursors map[string]feed.Cursor, size int, err error) {
	return parseCursorFile(text)
}

// ReadFrames reads the messages on a WebSocket of FollowAll until there is an error.
func ReadFrames(ctx context.Context, conn io.ReadWriteCloser) (sizes []int, err error) {
	s := newWebSocket(conn, time.Minute)
	defer s.close()
	for {
		_, data, err := s.receive(ctx)
		if err != nil {
			return sizes, err
		}
		sizes = append(sizes, len(data))
	}
}
