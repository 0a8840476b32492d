package client

import (
	"context"
	"iter"

	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/inventory/auditor"
)

// AuditState is Audit of a state, with all options.
func (c *Client) AuditState(ctx context.Context, set string, own auditor.Own, o auditor.Options) iter.Seq2[Difference, error] {
	return c.audit(ctx, set, own, o)
}

type testStore struct{ inventory.Store }

func (testStore) Copy(string) error { return nil }
func (testStore) Close() error      { return nil }

// OpenReplicaIn is OpenReplica in a store.
func (c *Client) OpenReplicaIn(ctx context.Context, set string, store inventory.Store, o ReplicaOptions) (*Replica, error) {
	o.Store = testStore{store}
	return c.OpenReplica(ctx, set, o)
}
