package client

import (
	"context"
	"iter"

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
