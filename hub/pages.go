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
	// maxPageReads is the maximum number of concurrent reads of the memory for followers.
	// Each read holds a page of up to about 1 MiB of changes as the stores encode them.
	maxPageReads = 16

	// A page ends at a position that is a multiple of pageEntries. So followers that
	// started at different cursors soon read the same pages.
	pageEntries = 1_000

	// pageCacheBytes is the maximum size of the cached pages, including the encodings that
	// their batches cache.
	pageCacheBytes = 32 << 20
)

// A pageCache reads the memory for followers that are behind a tail's window. Followers that
// catch up at about the same time share the pages: each page is read once, and each batch in
// it is encoded once. Its methods are safe for concurrent use, except that only one goroutine
// may call clearIdle.
type pageCache struct {
	log         changelog.Log
	reads       chan struct{} // semaphore: one element per read of the memory in progress
	cache       *lru.Cache[pageKey, []*feed.Batch]
	inFlight    flight.Group[pageKey, []*feed.Batch]
	generation  atomic.Uint64 // number of calls of invalidate
	lookups     atomic.Uint64 // number of calls of page
	idleLookups uint64        // value of lookups at the last clearIdle
}

// A pageKey identifies the batches after a cursor, with at most limit entries. The generation
// distinguishes pages read before and after a log lost entries.
type pageKey struct {
	set        string
	after      feed.Cursor
	limit      int
	generation uint64
}

func newPageCache(log changelog.Log) *pageCache {
	return &pageCache{log: log, reads: make(chan struct{}, maxPageReads), cache: lru.New[pageKey, []*feed.Batch](pageCacheBytes)}
}

// page returns batches after a cursor, as Hub.Follow yields them, with at most limit entries.
// It returns none if nothing follows the cursor. shared reports whether the batches come from
// the read of another follower.
func (p *pageCache) page(ctx context.Context, set string, after feed.Cursor, limit int) (page []*feed.Batch, shared bool, err error) {
	p.lookups.Add(1)
	key := pageKey{set, after, min(limit, pageEntries-int(after.Position%pageEntries)), p.generation.Load()}
	if page, ok := p.cache.Get(key); ok {
		return page, true, nil
	}
	shared = true
	page, err = p.inFlight.Do(ctx, key, func() ([]*feed.Batch, error) {
		if page, ok := p.cache.Get(key); ok {
			return page, nil
		}
		shared = false
		return p.readPage(ctx, key)
	})
	if shared && len(page) == 0 {
		// The other follower's read may have started before this follower was woken.
		page, err = p.readPage(ctx, key)
		shared = false
	}
	return page, shared, err
}

// readPage reads a page from the memory, and caches it if it is complete.
func (p *pageCache) readPage(ctx context.Context, key pageKey) ([]*feed.Batch, error) {
	select {
	case p.reads <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-p.reads }()
	b, err := p.log.Since(ctx, key.set, key.after, key.limit)
	if err != nil || len(b.Entries) == 0 && !b.Diverged {
		return nil, err
	}
	page := b.Split() // a few compressed blocks can decode to a large batch
	switch {
	case b.Diverged:
		p.invalidate()
	case key.after.IsZero(): // not cached: the zero cursor is the start of any log of this name
	case b.Cursor.Position%pageEntries == 0 || len(page) > 1:
		p.cache.Add(key, page, int64(2*b.Size()))
	}
	return page, nil
}

// invalidate drops all pages, because a log has lost entries or was deleted. Later calls of
// page do not use pages that are being read now.
func (p *pageCache) invalidate() {
	p.generation.Add(1)
	p.cache.Clear()
}

// clearIdle frees all pages if no page was requested since the last call. Only one goroutine
// may call it.
func (p *pageCache) clearIdle() {
	lookups := p.lookups.Load()
	if lookups == p.idleLookups {
		p.cache.Clear()
	}
	p.idleLookups = lookups
}
