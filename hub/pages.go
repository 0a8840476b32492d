package hub

import (
	"context"
	"sync/atomic"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/flight"
	"github.com/rshub/rshub/internal/lru"
)

const (
	// maxReads is how many followers that are behind read the memory at the same time. One
	// read holds a page, of up to about 1 MiB of changes as the stores encode them.
	maxReads = 16

	// A page ends at a multiple of pageEntries. So followers that began at different cursors
	// soon want the same pages.
	pageEntries = 1_000

	// pagesBytes bounds the pages that are kept, with the text that each gets once.
	pagesBytes = 32 << 20
)

// pages are the memory as followers read it that are behind a tail's window. Followers that
// catch up at about the same time share the pages: each is read, and each batch in it is
// encoded, once. Its methods may be called concurrently.
type pages struct {
	log     changelog.Log
	reads   chan struct{} // holds one element for each read of the memory
	kept    *lru.Cache[pageKey, []*feed.Batch]
	reading flight.Group[pageKey, []*feed.Batch]
	losses  atomic.Uint64 // how often a log lost entries that a page may have
	asked   atomic.Uint64 // how often a page was asked for
	before  uint64        // what asked was at the last tidy
}

// A pageKey names what follows a cursor, up to so many entries. What was read before a log lost
// entries has another key than what is read after that.
type pageKey struct {
	set    string
	after  feed.Cursor
	most   int
	losses uint64
}

func newPages(log changelog.Log) *pages {
	return &pages{log: log, reads: make(chan struct{}, maxReads), kept: lru.New[pageKey, []*feed.Batch](pagesBytes)}
}

// after returns batches that follow a cursor, as Hub.Follow yields them, with at most so many
// entries. It returns none if nothing follows. shared means that another follower has read them.
func (p *pages) after(ctx context.Context, set string, after feed.Cursor, most int) (page []*feed.Batch, shared bool, err error) {
	p.asked.Add(1)
	key := pageKey{set, after, min(most, pageEntries-int(after.Position%pageEntries)), p.losses.Load()}
	if page, ok := p.kept.Get(key); ok {
		return page, true, nil
	}
	shared = true
	page, err = p.reading.Do(ctx, key, func() ([]*feed.Batch, error) {
		if page, ok := p.kept.Get(key); ok {
			return page, nil
		}
		shared = false
		return p.read(ctx, key)
	})
	if shared && len(page) == 0 {
		// The read of the other follower may have begun before this one was told to look.
		page, err = p.read(ctx, key)
		shared = false
	}
	return page, shared, err
}

// read reads a page, and keeps it if it is whole.
func (p *pages) read(ctx context.Context, key pageKey) ([]*feed.Batch, error) {
	select {
	case p.reads <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-p.reads }()
	b, err := p.log.Since(ctx, key.set, key.after, key.most)
	if err != nil || len(b.Entries) == 0 && !b.Diverged {
		return nil, err
	}
	page := b.Split() // a few compressed blocks can be a large batch
	switch {
	case b.Diverged:
		p.lost()
	case key.after.IsZero(): // the beginning of any log of this name
	case b.Cursor.Position%pageEntries == 0 || len(page) > 1:
		p.kept.Add(key, page, int64(2*b.Size()))
	}
	return page, nil
}

// lost forgets all pages, because a log has lost entries, or was removed.
func (p *pages) lost() {
	p.losses.Add(1)
	p.kept.Clear()
}

// tidy frees the memory of the pages if nobody has asked for one since the last tidy. Only
// one goroutine may call it.
func (p *pages) tidy() {
	asked := p.asked.Load()
	if asked == p.before {
		p.kept.Clear()
	}
	p.before = asked
}
