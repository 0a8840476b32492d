package client

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// FollowOptions configures Client.Follow. The zero value uses the defaults.
type FollowOptions struct {
	Filter feed.Filter   // filter of the changes to yield; default: all changes
	Limit  int           // maximum number of changes in a page, 1 to 10,000; default: 1,000
	Wait   time.Duration // how long the hub holds a request while there are no changes, at most 5 minutes; default: 30 s

	once       bool // whether to end when there are no more changes
	mergeLimit int  // number of changes up to which pages that are available are merged into one batch; default: no merging
}

const (
	defaultLimit = 1_000
	defaultWait  = 30 * time.Second
	idleDelay    = time.Second // delay after an empty page that arrived sooner than this
)

// Follow yields the changes of a set in order, batch by batch, and blocks while there are none.
// since is the position to start from: a cursor, for the changes after it; a datetime, for changes
// at that time and later; "start", for the oldest change that the hub has; or "now", for changes
// after the hub's first response. An empty since means "now".
//
// The first batch may be empty. Its Cursor is the position at which Follow starts, and can be used
// to resume. A later batch is empty only if the filter omitted its changes, so that only the Cursor
// moved. Each batch starts where the previous one ended, even after outages and restarts of the
// hub: Follow retries with increasing delays until ctx is done. (It never waits longer than an
// hour, whatever Retry-After the hub sends.) So no change is skipped, except if a batch is
// Diverged. Then the hub's change memory has lost its tail, the log continues at After, and changes
// may repeat.
//
// An error is the last thing that Follow yields. It is feed.ErrGone if the hub no longer has the
// changes after since; the destination must then read the source's resources again. It may be
// another *RefusedError. Before the first batch it may also be ErrNotHub, or an *UnavailableError
// that is Permanent, because the URL is then likely wrong. When ctx is done, Follow ends without an
// error.
func (c *Client) Follow(ctx context.Context, set, since string, o FollowOptions) iter.Seq2[*feed.Batch, error] {
	if o.Limit <= 0 {
		o.Limit = defaultLimit
	}
	if o.Wait <= 0 {
		o.Wait = defaultWait
	}
	if since == "" {
		since = "now"
	}
	return func(yield func(*feed.Batch, error) bool) {
		if err := feed.CheckSet(set); err != nil {
			yield(nil, err)
			return
		}
		f := newFollower(c, set, since, o)
		for ctx.Err() == nil {
			sentAt := c.opts.Now()
			b, err := f.nextPage(ctx)
			var wait time.Duration
			switch {
			case ctx.Err() != nil:
				return
			case err != nil:
				if wait, err = f.handleError(err); err != nil {
					yield(nil, err)
					return
				}
			case f.advance(b):
				f.gatherPages(ctx, b)
				if !yield(b, nil) || f.atEnd(b) {
					return
				}
			case f.atEnd(b):
				return
			case c.opts.Now().Sub(sentAt) < idleDelay:
				wait = idleDelay // a hub that is stopping returns an empty page immediately
			}
			if wait > 0 && c.opts.Sleep(ctx, wait) != nil {
				return
			}
		}
	}
}

// A follower holds the state of a call of Follow.
type follower struct {
	reader
	opts FollowOptions

	since  string       // value of since for the next page
	cursor *feed.Cursor // since as a cursor; nil before the first page
}

func newFollower(c *Client, set, place string, o FollowOptions) *follower {
	return &follower{reader: reader{client: c, set: set, limit: o.Limit, maxLimit: o.Limit}, opts: o, since: place}
}

// advance moves f to the end of page b. It reports whether b must be yielded: it is the first page,
// moves the cursor, has changes, or is Diverged.
func (f *follower) advance(b *feed.Batch) bool {
	news := f.cursor == nil || *f.cursor != b.Cursor || b.Diverged || len(b.Entries) > 0
	f.cursor, f.since = &b.Cursor, b.Cursor.String()
	f.notePage()
	return news
}

// gatherPages appends to a full batch the changes that are available at the hub, up to mergeLimit.
// It does not wait for more.
func (f *follower) gatherPages(ctx context.Context, b *feed.Batch) {
	for n := len(b.Entries); n >= f.limit && len(b.Entries) < f.opts.mergeLimit; {
		next, err := f.fetchPage(ctx, 0)
		if err != nil || next.Diverged || len(next.Entries) == 0 {
			return // the request for the next page reports the error
		}
		f.advance(next)
		n = len(next.Entries)
		b.Entries, b.Cursor = append(b.Entries, next.Entries...), next.Cursor
	}
}

// atEnd reports whether Follow must end because there are no more changes.
func (f *follower) atEnd(b *feed.Batch) bool {
	return f.opts.once && len(b.Entries) == 0 && b.Cursor == b.After
}

// nextPage sends one request for the changes after since. The hub returns the first page
// immediately. For other pages it waits until there is a change.
func (f *follower) nextPage(ctx context.Context) (*feed.Batch, error) {
	if f.cursor == nil || f.opts.once {
		return f.fetchPage(ctx, 0)
	}
	return f.fetchPage(ctx, f.opts.Wait)
}

// fetchPage sends one request for the changes after since, for which the hub waits at most wait.
func (f *follower) fetchPage(ctx context.Context, wait time.Duration) (b *feed.Batch, err error) {
	query := f.opts.Filter.Values()
	query.Set("since", f.since)
	if wait > 0 {
		query.Set("wait", wait.String())
	}
	err = f.get(ctx, query, wait, func(resp *http.Response) error {
		b, err = f.readPage(resp)
		return err
	})
	return b, err
}

// readPage decodes a page, and rejects any other than the requested one. The response may not come
// from the hub, but for example from a cache that ignores queries.
func (f *follower) readPage(resp *http.Response) (*feed.Batch, error) {
	topic := f.client.base.Topic(f.set)
	b, _, err := feed.ReadBatch(resp.Body, resourcesync.Limits{Bytes: maxPage})
	at, known := parseSince(f.since)
	switch {
	case err != nil:
		return nil, f.readError(err)
	case b.Set != f.set:
		return nil, notHubError(fmt.Sprintf("%s: got changes of another set, %q", topic, b.Set))
	case known && !b.Diverged && !continues(b, at):
		return nil, notHubError(fmt.Sprintf("%s: got changes after %v, want after %v", topic, b.After, at))
	}
	return b, nil
}

// continues reports whether a batch starts at a cursor. At position 0, any datetime matches: a log that
// does not exist yet has none.
func continues(b *feed.Batch, at feed.Cursor) bool {
	return b.After == at || b.After.Position == 0 && at.Position == 0
}

// parseSince returns a value of since as a cursor. known is false if it is a word or a datetime. (A
// month, 2026-01, is a datetime.)
func parseSince(since string) (at feed.Cursor, known bool) {
	at, err := feed.ParseCursor(since)
	_, terr := resourcesync.ParseTime(since)
	return at, err == nil && terr != nil
}
