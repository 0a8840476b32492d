package poll

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/rshub/rshub/client"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/harvest"
	"github.com/rshub/rshub/inventory"
	"github.com/rshub/rshub/inventory/audit"
	"github.com/rshub/rshub/inventory/digest"
	"github.com/rshub/rshub/reconcile"
	"github.com/rshub/rshub/resourcesync"
)

// A Look looks at the source of a set once, and publishes what is new. out has what the look
// before has left in Compared and Seen; Look sets these and what it found. An error says
// that the set and its source may still differ.
type Look func(ctx context.Context, set string, out *Outcome) error

// Lists returns the Look for sources that list their resources: with a Resource List, a
// sitemap, or an index of either. hub is a client of the hub itself. dir is where temporary
// directories are made; default os.TempDir.
func Lists(lister *harvest.Lister, hub *client.Client, dir string) Look {
	return func(ctx context.Context, set string, out *Outcome) error {
		seen := &harvest.Seen{}
		if out.Seen != nil && time.Since(out.Compared) < wholeEvery {
			*seen = *out.Seen
		}
		listing := func(ctx context.Context) iter.Seq2[*feed.Entry, error] { return lister.Since(ctx, out.Source, seen) }
		s := reconcile.New(&site{hub, set, nil}, listing, reconcile.Options{Dir: dir, Doubles: true})
		begin := time.Now()
		r, err := s.Sync(ctx)
		err = errors.Join(err, s.Close())
		out.Listed = r.Listed
		if _, many := errors.AsType[*reconcile.TooMany](err); many {
			return fmt.Errorf("%w; nothing was published: if they are really gone, run rspublish sync with -max-delete once", err)
		}
		out.Created, out.Updated, out.Deleted, out.Unknown = r.Created, r.Updated, r.Deleted, r.Unknown
		switch {
		case errors.Is(err, harvest.ErrUnchanged):
			out.Unchanged = true
			return nil
		case err != nil:
			return err
		}
		out.Compared, out.Seen = begin.UTC(), seen
		return nil
	}
}

// A site is a set of this hub: a reconcile.Hub.
type site struct {
	hub  *client.Client
	set  string
	body []byte // of a publish
}

func (s *site) Differences(ctx context.Context, own func(context.Context) (*inventory.State, error), look func(audit.Look)) iter.Seq2[audit.Difference, error] {
	differences := s.hub.Audit(ctx, s.set, own, client.AuditOptions{By: digest.ByContent, Settle: 1, Look: look})
	return func(yield func(audit.Difference, error) bool) {
		for d, err := range differences {
			if errors.Is(err, feed.ErrNoSet) {
				err = errDeleted
			}
			if !yield(d, err) {
				return
			}
		}
	}
}

func (s *site) Publish(ctx context.Context, key string, changes []resourcesync.Change) (feed.Cursor, error) {
	s.body = s.body[:0]
	for i := range changes {
		s.body = append(s.body, '{')
		s.body = append(resourcesync.AppendJSONMembers(s.body, &changes[i]), '}', '\n')
	}
	receipt, err := s.hub.PublishLines(ctx, s.set, "poll-"+key, s.body, len(changes))
	if err != nil {
		return feed.Cursor{}, err
	}
	return feed.ParseCursor(receipt.Cursor)
}

// errDeleted is not feed.ErrNoSet, so that a set that was deleted is not made anew.
var errDeleted = errors.New("the set was deleted")

func (s *site) Make(context.Context) error { return errDeleted }

func (s *site) Complete(ctx context.Context) error { return s.hub.Complete(ctx, s.set, true) }
