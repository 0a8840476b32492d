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

// BaselineOptions configures Client.Baseline. The zero value uses the defaults.
type BaselineOptions struct {
	Prefix string // prefix of the loc of the resources to read; default: all resources
	After  string // Cursor of an earlier part, to continue after it; default: start a new baseline
	Limit  int    // maximum number of resources in a part, 1 to 10,000; default: 1,000

	// Collection is the URI of a collection. Baseline reads only resources whose newest change has
	// a link rel=collection to it. A part before the End may then have no resources, and their
	// number is unknown. The default is to read all resources.
	Collection string
}

// Baseline yields all resources of a set as of one cursor, each with its newest change, part by
// part in the order of loc. The last part is the End and has no resources. Follow with its Cursor
// continues without a gap. If the End is Complete, a resource with the Prefix that no part has
// named does not exist, or is not in the Collection.
//
// After outages and restarts of the hub, Baseline continues where it was interrupted. If the hub no
// longer has the resources as of that cursor, the baseline starts over as of a later cursor, with a
// part that is marked as Restart. The caller must then discard all earlier parts. To continue an
// earlier baseline, set After to the Cursor of its last part; if the hub cannot continue it, the
// first part is marked as Restart.
//
// An error is the last thing that Baseline yields. It is feed.ErrNoInventory if the hub has only
// changes of the set, and no inventory. The other errors are the same as Follow's. When ctx is done,
// Baseline ends without an error and without an End.
func (c *Client) Baseline(ctx context.Context, set string, o BaselineOptions) iter.Seq2[*feed.BaselinePage, error] {
	if o.Limit <= 0 {
		o.Limit = defaultLimit
	}
	return func(yield func(*feed.BaselinePage, error) bool) {
		b := &baselineReader{reader: reader{client: c, set: set, limit: o.Limit, maxLimit: o.Limit}, since: o.After,
			filter: feed.Filter{Prefix: o.Prefix, Collection: o.Collection}}
		err := feed.CheckSet(set)
		if err == nil && o.After != "" {
			b.cursor, err = feed.ParseBaselineCursor(o.After)
		}
		if err != nil {
			yield(nil, err)
			return
		}
		for ctx.Err() == nil {
			var wait time.Duration
			page, err := b.fetchPage(ctx)
			switch {
			case ctx.Err() != nil:
				return
			case b.since != "" && errors.Is(err, feed.ErrGone):
				wait = b.restart()
			case err != nil:
				if wait, err = b.handleError(err); err != nil {
					yield(nil, err)
					return
				}
			default:
				wait = b.advance(page)
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

// A baselineReader holds the state of a call of Baseline.
type baselineReader struct {
	reader
	filter feed.Filter

	since     string              // value of since for the next page; empty at the start
	cursor    feed.BaselineCursor // parsed since, unless that is empty
	lastLoc   string              // last received loc, or empty
	count     uint64              // number of received resources
	fromStart bool                // whether count includes all resources since the start of the baseline
	discarded bool                // whether the previous baseline was discarded, so that the next page is a Restart
	restarts  int                 // number of Restarts since the last page that was not one
}

// restart discards the baseline. It returns how long to wait before the next request.
func (b *baselineReader) restart() time.Duration {
	b.since, b.discarded = "", true
	b.restarts++
	if b.restarts == 1 {
		return 0
	}
	return retryDelay(b.restarts - 2) // the hub seems to drop its state before it can be read
}

// advance moves b to the end of page p, and marks p if it is a Restart. It returns how long to wait
// before the next request.
func (b *baselineReader) advance(p *feed.BaselinePage) (wait time.Duration) {
	b.notePage()
	p.Restart = p.Restart || b.discarded
	switch {
	case p.Restart && !b.discarded:
		wait = b.restart()
	case !p.Restart:
		b.restarts = 0
	}
	if p.Restart || b.since == "" {
		b.lastLoc, b.count, b.fromStart = "", 0, true
	}
	if n := len(p.Entries); n > 0 {
		b.lastLoc = p.Entries[n-1].Change.Loc
		b.count += uint64(n)
	}
	b.cursor, b.since, b.discarded = p.Next, p.Next.String(), false
	return wait
}

// fetchPage sends one request for the next page.
func (b *baselineReader) fetchPage(ctx context.Context) (p *feed.BaselinePage, err error) {
	query := b.filter.Values()
	query.Set("since", cmp.Or(b.since, feed.SinceBaseline))
	err = b.get(ctx, query, 0, func(resp *http.Response) error {
		p, err = b.readPage(resp)
		return err
	})
	return p, err
}

// readPage decodes a page, and rejects any other than the requested one. The response may not come
// from the hub, but for example from a cache that ignores queries.
func (b *baselineReader) readPage(resp *http.Response) (*feed.BaselinePage, error) {
	topic := b.client.base.Topic(b.set)
	p, _, err := feed.ReadBaseline(resp.Body, resourcesync.Limits{Bytes: maxPage})
	if err != nil {
		return nil, b.readError(err)
	}
	if p.Set != b.set {
		return nil, notHubError(fmt.Sprintf("%s: got resources of another set, %q", topic, p.Set))
	}
	last, named, whole := b.lastLoc, b.count, b.fromStart
	if p.Restart || b.since == "" {
		if last, named, whole = "", 0, true; p.After.Rank > 0 && b.filter.Prefix == "" {
			return nil, notHubError(fmt.Sprintf("%s: got resources after %v, want the start of a baseline", topic, p.After))
		}
	} else if p.Next.Cursor != b.cursor.Cursor || p.After != b.cursor {
		return nil, notHubError(fmt.Sprintf("%s: got resources after %v, want after %v", topic, p.After, b.cursor))
	}
	for i := range p.Entries {
		switch loc := p.Entries[i].Change.Loc; {
		case !b.filter.Match(&p.Entries[i].Change):
			return nil, notHubError(fmt.Sprintf("%s: got resource %q, which does not match %s", topic, resourcesync.Shorten(loc), b.filter.Key()))
		case loc <= last:
			return nil, notHubError(fmt.Sprintf("%s: got resource %q after %q, want them in the order of loc", topic, resourcesync.Shorten(loc), resourcesync.Shorten(last)))
		}
		last = p.Entries[i].Change.Loc
	}
	if p.End && whole && named != p.Count && b.filter.Collection == "" {
		return nil, notHubError(fmt.Sprintf("%s: got a baseline of %d resources, want %d", topic, named, p.Count))
	}
	return p, nil
}
