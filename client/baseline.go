package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// BaselineOptions say what a Baseline reads. Zero values are the defaults.
type BaselineOptions struct {
	Prefix string // only resources whose loc begins with it; default: all
	After  string // the Cursor of an earlier part, to go on after it; default: begin a new baseline
	Limit  int    // the most resources in a part, 1 to 10,000; default 1,000

	// Collection is a URI: only resources whose newest change has a link rel=collection to
	// it. A part may then have no resources also before the End, and nothing says how many
	// there are. Default: all.
	Collection string
}

// Baseline yields all resources of a set as they were at one cursor, each with its newest
// change, part by part in the order of loc. The last part has no resources and is the
// End. Its Cursor is the place to Follow from: nothing lies between. If the End is
// Complete, a resource with the Prefix that no part named does not exist any more, or is
// not in the Collection.
//
// Baseline goes on where it was after outages and restarts of the hub. When the hub does
// not have the resources as of that cursor any more, the baseline begins anew with a part
// that is marked as Restart, as of a later cursor. The caller must then discard the parts
// before it. To continue an earlier baseline, set After to the Cursor of its last part;
// if that is not possible any more, the first part is marked as Restart.
//
// An error is the last thing that Baseline yields. It is feed.ErrNoInventory if the hub
// knows no resources of the set, only changes. The other errors are those of Follow. When
// ctx is done, Baseline ends without an error and without an End.
func (c *Client) Baseline(ctx context.Context, set string, o BaselineOptions) iter.Seq2[*feed.BaselinePage, error] {
	if o.Limit <= 0 {
		o.Limit = defaultLimit
	}
	return func(yield func(*feed.BaselinePage, error) bool) {
		b := &baseline{reader: reader{client: c, set: set, limit: o.Limit, most: o.Limit}, place: o.After,
			filter: feed.Filter{Prefix: o.Prefix, Collection: o.Collection}}
		err := feed.CheckSet(set)
		if err == nil && o.After != "" {
			b.at, err = feed.ParsePlace(o.After)
		}
		if err != nil {
			yield(nil, err)
			return
		}
		for ctx.Err() == nil {
			var wait time.Duration
			page, err := b.page(ctx)
			switch {
			case ctx.Err() != nil:
				return
			case b.place != "" && errors.Is(err, feed.ErrGone):
				wait = b.anew()
			case err != nil:
				if wait, err = b.failed(err); err != nil {
					yield(nil, err)
					return
				}
			default:
				wait = b.take(page)
				if !yield(page, nil) || page.End {
					return
				}
			}
			if wait > 0 && c.opts.Sleep(ctx, wait) != nil {
				return
			}
		}
	}
}

// A baseline is the state of one Baseline.
type baseline struct {
	reader
	filter feed.Filter

	place    string     // the place to ask for next; empty: the beginning
	at       feed.Place // the same, unless it is empty
	last     string     // the last loc that came; empty: none has
	named    uint64     // how many resources the baseline has named
	whole    bool       // named counts all resources since the beginning of the baseline
	lost     bool       // the baseline before is lost, so the next page is a Restart
	restarts int        // Restarts since the last page that was not one
}

// anew begins the baseline anew. It returns how long to wait before that.
func (b *baseline) anew() time.Duration {
	b.place, b.lost = "", true
	b.restarts++
	if b.restarts == 1 {
		return 0
	}
	return pause(b.restarts - 2) // the hub seems to drop its state before it is read
}

// take moves to the end of a page, and marks the page if it is a Restart. It returns how
// long to wait before the next page.
func (b *baseline) take(p *feed.BaselinePage) (wait time.Duration) {
	b.came()
	p.Restart = p.Restart || b.lost
	switch {
	case p.Restart && !b.lost:
		wait = b.anew()
	case !p.Restart:
		b.restarts = 0
	}
	if p.Restart || b.place == "" {
		b.last, b.named, b.whole = "", 0, true
	}
	if n := len(p.Entries); n > 0 {
		b.last = p.Entries[n-1].Change.Loc
		b.named += uint64(n)
	}
	b.at, b.place, b.lost = p.Place, p.Place.String(), false
	return wait
}

// page asks once for the next page.
func (b *baseline) page(ctx context.Context) (p *feed.BaselinePage, err error) {
	query := b.filter.Values()
	query.Set("since", cmp.Or(b.place, feed.SinceBaseline))
	err = b.get(ctx, query, 0, func(resp *http.Response) error {
		p, err = b.read(resp)
		return err
	})
	return p, err
}

// read accepts only the page that was asked for. The answer may come from something
// else than the hub, such as a cache that does not look at queries.
func (b *baseline) read(resp *http.Response) (*feed.BaselinePage, error) {
	topic := b.client.base.Topic(b.set)
	p, _, err := feed.ReadBaseline(resp.Body, resourcesync.Limits{Bytes: maxPage})
	if err != nil {
		return nil, b.unread(err)
	}
	if p.Set != b.set {
		return nil, strange(fmt.Sprintf("%s answers with resources of the set %s", topic, p.Set))
	}
	last, named, whole := b.last, b.named, b.whole
	if p.Restart || b.place == "" {
		if last, named, whole = "", 0, true; p.After.Rank > 0 && b.filter.Prefix == "" {
			return nil, strange(fmt.Sprintf("%s answers with what follows %v, and not the beginning of a baseline", topic, p.After))
		}
	} else if p.Place.Cursor != b.at.Cursor || p.After != b.at {
		return nil, strange(fmt.Sprintf("%s answers with what follows %v, and not %v", topic, p.After, b.at))
	}
	for i := range p.Entries {
		switch loc := p.Entries[i].Change.Loc; {
		case !b.filter.Match(&p.Entries[i].Change):
			return nil, strange(fmt.Sprintf("%s answers with %s, and not with what was asked for: %s", topic, resourcesync.Shorten(loc), b.filter.Key()))
		case loc <= last:
			return nil, strange(fmt.Sprintf("%s answers with %s behind %s", topic, resourcesync.Shorten(loc), resourcesync.Shorten(last)))
		}
		last = p.Entries[i].Change.Loc
	}
	if p.End && whole && named != p.Count && b.filter.Collection == "" {
		return nil, strange(fmt.Sprintf("%s has named %d resources of a baseline of %d", topic, named, p.Count))
	}
	return p, nil
}
