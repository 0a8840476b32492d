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

// FollowOptions say what a Follow asks for. Zero values are the defaults.
type FollowOptions struct {
	Filter feed.Filter   // only changes that pass the filter are yielded; default: all changes
	Limit  int           // the most changes in a batch, 1 to 10,000; default 1,000
	Wait   time.Duration // how long the hub holds a request while there is no change, at most 5 minutes; default 30 s

	once   bool // Follow ends when there are no more changes
	gather int  // merge the batches that already wait at the hub until a batch has this many changes; default: do not merge
}

const (
	defaultLimit = 1_000
	defaultWait  = 30 * time.Second
	idlePause    = time.Second // after an empty page that came sooner than this
)

// Follow yields the changes of a set as they come, in order, batch by batch. It blocks
// while there are none. The place says where it begins: after a cursor, with the
// changes of a datetime and later ones, with the oldest change that the hub keeps
// ("start"), or with the changes after the hub's first answer ("now"). An empty place
// means "now".
//
// The first batch may be empty. It says where Follow begins, and its Cursor is good to
// go on from. A later batch is empty only if a filter left its changes out, so that
// only the Cursor moved. Each batch begins where the one before ended, also after
// outages and restarts of the hub: Follow asks again, with growing pauses, until ctx is
// done. (It waits for an hour at most, whatever Retry-After says.) So nothing is skipped,
// except when a batch is Diverged. The hub's change memory has then lost its tail, the log
// goes on at After, and changes may come again.
//
// An error is the last thing that Follow yields. It is feed.ErrGone if the hub no
// longer has the changes after the place; the destination must then read the source's
// resources anew. It may be another *Refused. At the beginning it may also be an
// ErrNoHub, or an *Unavailable that is Lasting, because then the URL is likely wrong.
// When ctx is done, Follow ends without an error.
func (c *Client) Follow(ctx context.Context, set, place string, o FollowOptions) iter.Seq2[*feed.Batch, error] {
	if o.Limit <= 0 {
		o.Limit = defaultLimit
	}
	if o.Wait <= 0 {
		o.Wait = defaultWait
	}
	if place == "" {
		place = "now"
	}
	return func(yield func(*feed.Batch, error) bool) {
		if err := feed.CheckSet(set); err != nil {
			yield(nil, err)
			return
		}
		f := newFollower(c, set, place, o)
		for ctx.Err() == nil {
			asked := c.opts.Now()
			b, err := f.page(ctx)
			var wait time.Duration
			switch {
			case ctx.Err() != nil:
				return
			case err != nil:
				if wait, err = f.failed(err); err != nil {
					yield(nil, err)
					return
				}
			case f.take(b):
				f.gather(ctx, b)
				if !yield(b, nil) || f.atEnd(b) {
					return
				}
			case f.atEnd(b):
				return
			case c.opts.Now().Sub(asked) < idlePause:
				wait = idlePause // a hub that is stopping answers at once with an empty page
			}
			if wait > 0 && c.opts.Sleep(ctx, wait) != nil {
				return
			}
		}
	}
}

// A follower is the state of one Follow.
type follower struct {
	reader
	opts FollowOptions

	place string       // the place to ask for next
	at    *feed.Cursor // the same as a cursor; nil: no page has come yet
}

func newFollower(c *Client, set, place string, o FollowOptions) *follower {
	return &follower{reader: reader{client: c, set: set, limit: o.Limit, most: o.Limit}, opts: o, place: place}
}

// take moves the follower to the end of a page. It reports whether the page is to be
// yielded: it is the first, moves the cursor, has changes, or is Diverged.
func (f *follower) take(b *feed.Batch) bool {
	news := f.at == nil || *f.at != b.Cursor || b.Diverged || len(b.Entries) > 0
	f.at, f.place = &b.Cursor, b.Cursor.String()
	f.came()
	return news
}

// gather adds to a full batch the changes that already wait at the hub. It does
// not wait for more.
func (f *follower) gather(ctx context.Context, b *feed.Batch) {
	for n := len(b.Entries); n >= f.limit && len(b.Entries) < f.opts.gather; {
		next, err := f.ask(ctx, 0)
		if err != nil || next.Diverged || len(next.Entries) == 0 {
			return // the next page gets the error again
		}
		f.take(next)
		n = len(next.Entries)
		b.Entries, b.Cursor = append(b.Entries, next.Entries...), next.Cursor
	}
}

// atEnd reports whether the follower has to end because no more changes follow.
func (f *follower) atEnd(b *feed.Batch) bool {
	return f.opts.once && len(b.Entries) == 0 && b.Cursor == b.After
}

// page asks once for the changes after the place. The first page comes at once. For
// other pages the hub waits until there is a change.
func (f *follower) page(ctx context.Context) (*feed.Batch, error) {
	if f.at == nil || f.opts.once {
		return f.ask(ctx, 0)
	}
	return f.ask(ctx, f.opts.Wait)
}

// ask asks once for the changes after the place, and tells the hub how long to
// wait for them.
func (f *follower) ask(ctx context.Context, wait time.Duration) (b *feed.Batch, err error) {
	query := f.opts.Filter.Values()
	query.Set("since", f.place)
	if wait > 0 {
		query.Set("wait", wait.String())
	}
	err = f.get(ctx, query, wait, func(resp *http.Response) error {
		b, err = f.read(resp)
		return err
	})
	return b, err
}

// read accepts only the page that was asked for. The answer may come from something
// else than the hub, such as a cache that does not look at queries.
func (f *follower) read(resp *http.Response) (*feed.Batch, error) {
	topic := f.client.base.Topic(f.set)
	b, _, err := feed.ReadBatch(resp.Body, resourcesync.Limits{Bytes: maxPage})
	at, known := f.after()
	switch {
	case err != nil:
		return nil, f.unread(err)
	case b.Set != f.set:
		return nil, strange(fmt.Sprintf("%s answers with changes of the set %s", topic, b.Set))
	case known && !b.Diverged && b.After != at && (b.After.Position > 0 || at.Position > 0):
		return nil, strange(fmt.Sprintf("%s answers with what follows %v, and not %v", topic, b.After, at))
	}
	return b, nil
}

// after returns the place to ask for next as a cursor. known is false for the first place, if
// that is a word or a datetime. (A month, 2026-01, is a datetime.)
func (f *follower) after() (at feed.Cursor, known bool) {
	at, err := feed.ParseCursor(f.place)
	_, word := resourcesync.ParseTime(f.place)
	return at, err == nil && word != nil
}
