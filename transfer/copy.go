// Package transfer moves what a hub keeps to another place: all of a store from the disk
// to Redis or back, and a backup of a running hub into a directory.
package transfer

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"reflect"

	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/claim"
	"github.com/rshub/rshub/claim/cursors"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/inventory"
)

// A Source is the store of a hub that is copied from. The caller closes it.
type Source struct {
	changelog.Exporter
	Beside Beside
}

// Close closes the store.
func (s *Source) Close() error { return errors.Join(s.Exporter.Close(), s.Beside.close()) }

// A Target is a store that is to become a copy. The caller closes it.
type Target struct {
	changelog.Importer
	Beside Beside
}

// Close closes the store.
func (t *Target) Close() error { return errors.Join(t.Importer.Close(), t.Beside.close()) }

// A Beside is the part of a store beside the change memory: the WebSub subscriptions, the
// inventories, and how far sets are published to those who do not ask for it.
type Beside struct {
	Inventories inventory.Store

	// Subscriptions opens the subscriptions, and the claims on their shards.
	Subscriptions func(ctx context.Context) (subscription.Registry, claim.Store, error)

	// Kinds are the ways in which sets are published. Published opens how far they are published
	// in one of them, and the claims of those who publish.
	Kinds     []string
	Published func(ctx context.Context, kind string) (cursors.Cursors, claim.Store, error)

	// Conn is what the store needs, and is closed after it; nil: nothing.
	Conn io.Closer
}

func (b *Beside) close() error {
	if b.Conn == nil {
		return nil
	}
	return b.Conn.Close()
}

// A Copied is what a Copy has copied, earlier runs included.
type Copied struct {
	changelog.Progress
	Subscriptions int
	Inventories   int
	Resources     uint64 // of the inventories
}

// Copy copies all of a store. It calls report after each step, and says in log which
// inventories it leaves out. It blocks until all is copied, ctx ends, or something fails.
// Then a Copy to the same target goes on where it stopped.
func Copy(ctx context.Context, from *Source, to *Target, log *slog.Logger, report func(changelog.Progress)) (c Copied, err error) {
	// The subscriptions are copied first, and how far sets are published. So the
	// copied log reaches at least as far as their cursors.
	if c.Subscriptions, err = copySubscriptions(ctx, from, to); err != nil {
		return c, err
	}
	if err := copyPublished(ctx, from, to); err != nil {
		return c, err
	}
	inventories := newInventoryCopy(from.Beside.Inventories, to.Beside.Inventories, log)
	c.Progress, err = changelog.Copy(ctx, from, to, inventories, report)
	c.Inventories, c.Resources = inventories.sets, inventories.resources
	return c, err
}

// Alike reports whether two stores hold the same sets, up to the same cursors.
func Alike(ctx context.Context, a, b *Source) (bool, error) {
	ours, err := a.Sets(ctx)
	if err != nil {
		return false, err
	}
	theirs, err := b.Sets(ctx)
	return reflect.DeepEqual(ours, theirs), err
}

// copySubscriptions copies the WebSub subscriptions, and the requests that wait, and
// returns the number of subscriptions. It blocks until all is copied, ctx ends, or
// something fails.
func copySubscriptions(ctx context.Context, from *Source, to *Target) (int, error) {
	old, _, err := from.Beside.Subscriptions(ctx)
	if err != nil {
		return 0, err
	}
	kept, claims, err := to.Beside.Subscriptions(ctx)
	if err != nil {
		return 0, err
	}
	return subscription.Copy(ctx, old, kept, claims)
}

// copyPublished copies how far sets are published.
func copyPublished(ctx context.Context, from *Source, to *Target) error {
	states, err := from.Sets(ctx)
	if err != nil {
		return err
	}
	var names []string
	for _, st := range states {
		if !feed.IsFramework(st.Set) {
			names = append(names, st.Set)
		}
	}
	for _, kind := range from.Beside.Kinds {
		old, _, err := from.Beside.Published(ctx, kind)
		if err != nil {
			return err
		}
		kept, claims, err := to.Beside.Published(ctx, kind)
		if err != nil {
			return err
		}
		if err := cursors.Copy(ctx, names, old, kept, claims); err != nil {
			return err
		}
	}
	return nil
}
