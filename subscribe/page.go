package subscribe

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/limit"
	"github.com/rshub/rshub/internal/zst"
)

const (
	// maxPage is the maximum size of a page in bytes; a single change may be longer. It has
	// room for 10,000 ordinary changes. Clients hold a page as a whole, so a page ends here even
	// if more changes were requested.
	maxPage = 4 << 20

	// pageRoom is the memory of a page while it is built: its text, and the entries read from
	// the change memory at a time.
	pageRoom = 2 * maxPage

	// textLifetime is the time for which the text of a page is retained. After that, the rest of
	// the page is rebuilt piece by piece as the client reads it, so the unread text of slow
	// clients uses no memory.
	textLifetime = 500 * time.Millisecond

	slowRead = 100 // entries read at a time for a slow client
)

// A page is the response to a poll while it is built. Its text is in pieces, because a long
// text would be copied repeatedly while it grows.
type page struct {
	poll   poll
	format *feed.Format
	room   *limit.Budget
	zstd   bool // each piece is sent as a frame of Zstandard (RFC 8878)

	// batch has the page's cursors, and only the first of its entries.
	batch *feed.Batch
	count int  // number of entries
	bytes int  // size of the text of the entries
	full  bool // the limit is reached, or the next entry does not fit

	// mu guards these while the page is sent. Before that, only the request uses them.
	mu     sync.Mutex
	share  *limit.Share // share of the budget, or nil
	pieces []piece      // nil if they are no longer retained
}

// A piece is a part of a page's text with whole entries.
type piece struct {
	text []byte
	end  feed.Cursor // cursor of the last entry
}

// newPage returns an empty page that starts where begin ends.
func (s *Server) newPage(begin *feed.Batch, p poll, f *feed.Format) *page {
	b := &feed.Batch{Set: begin.Set, After: begin.After, Cursor: begin.Cursor, Diverged: begin.Diverged}
	return &page{poll: p, format: f, room: s.opts.Answers, batch: b}
}

// reserve reserves memory for the page, unless the page has it already.
func (p *page) reserve(ctx context.Context) (err error) {
	if p.share == nil {
		p.share, err = p.room.Acquire(ctx, pageRoom)
	}
	return err
}

// release drops the text of the page and returns its memory to the budget.
func (p *page) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pieces = nil; p.share != nil {
		p.share.Release()
		p.share = nil
	}
}

// extend adds the entries of b that match the filter, until the page is full. It moves the
// page's cursor past the entries examined.
func (p *page) extend(b *feed.Batch) {
	if b.Diverged {
		p.batch = &feed.Batch{Set: b.Set, After: b.After, Cursor: b.After, Diverged: true}
		p.count, p.bytes, p.full, p.pieces = 0, 0, false, nil
	}
	for i := range b.Entries {
		e := &b.Entries[i]
		if p.full || p.poll.filter.Match(&e.Change) && !p.add(e) {
			return
		}
		p.batch.Cursor = e.Cursor
	}
}

// immutable reports whether the page for since never changes.
func (p *page) immutable(since string, now time.Time) bool {
	return p.full && !p.batch.Diverged && since == p.batch.After.String() && now.Sub(p.batch.Cursor.Time()) >= changelog.SettledAfter
}

// add adds an entry, unless it does not fit.
func (p *page) add(e *feed.Entry) bool {
	last := p.lastPiece()
	begin := len(last.text)
	last.text = p.format.Page.Entry(last.text, p.batch.Set, e, p.count == 0)
	n := len(last.text) - begin
	if p.count > 0 && p.bytes+n > maxPage {
		if p.full = true; begin == 0 {
			p.pieces = p.pieces[:len(p.pieces)-1] // created for this entry
		} else {
			last.text = last.text[:begin]
		}
		return false
	}
	last.end = e.Cursor
	if p.count == 0 {
		p.batch.Entries = []feed.Entry{e.Clone()}
	}
	p.count, p.bytes = p.count+1, p.bytes+n
	p.full = p.count == p.poll.limit
	return true
}

// lastPiece returns the piece for the next entry.
func (p *page) lastPiece() *piece {
	if n := len(p.pieces); n == 0 {
		p.pieces = append(p.pieces, piece{}) // not preallocated, because most pages of a long poll are small
	} else if len(p.pieces[n-1].text) >= maxChunk {
		p.pieces = append(p.pieces, piece{text: make([]byte, 0, maxChunk+maxIdle)})
	}
	return &p.pieces[len(p.pieces)-1]
}

// finish completes the page's text, and returns its length. The page keeps only the room
// that the text takes.
func (p *page) finish(next string) (length int) {
	if len(p.pieces) == 0 {
		p.pieces = []piece{{}}
	}
	last := &p.pieces[len(p.pieces)-1]
	last.end = p.batch.Cursor
	last.text = p.format.Page.Tail(last.text)
	p.pieces[0].text = slices.Concat(p.format.Page.Head(nil, p.batch, next), p.pieces[0].text)
	p.batch.Entries = nil
	for i := range p.pieces {
		length += len(p.pieces[i].text)
	}
	if p.share != nil {
		p.share.Shrink(int64(length))
	}
	return length
}

// next removes and returns the next piece of the page. ok is false if there is none, or the pieces
// were dropped.
func (p *page) next() (next piece, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.pieces) == 0 {
		return piece{}, false
	}
	next, p.pieces[0] = p.pieces[0], piece{}
	p.pieces = p.pieces[1:]
	return next, true
}

// send writes the page as the client reads it, and returns the number of bytes written. If the
// page cannot be completed, send aborts the connection, so that the client does not mistake a
// part for the whole.
func (s *Server) send(w http.ResponseWriter, r *http.Request, p *page) (sent int, err error) {
	write := func(text []byte) error {
		if p.zstd {
			text = zst.Append(nil, text)
		}
		sent += len(text)
		return s.write(w, text)
	}
	at := p.batch.After
	next, ok := p.next() // with the header, which is not rebuilt
	defer time.AfterFunc(textLifetime, p.release).Stop()
	for ; ok; next, ok = p.next() {
		if err := write(next.text); err != nil {
			return sent, err
		}
		at = next.end
	}
	for at != p.batch.Cursor {
		text, end, err := s.rebuildPiece(r.Context(), p, at)
		if err != nil {
			if r.Context().Err() == nil {
				s.opts.Logger.ErrorContext(r.Context(), "page aborted", "set", p.batch.Set, "err", err)
			}
			panic(http.ErrAbortHandler)
		}
		if err := write(text); err != nil {
			return sent, err
		}
		at = end
	}
	return sent, nil
}

// rebuildPiece rebuilds the piece of a page after an entry. It reads no more than the piece needs, and
// retains only the text.
func (s *Server) rebuildPiece(ctx context.Context, p *page, after feed.Cursor) (text []byte, end feed.Cursor, err error) {
	share, err := p.room.Wait(ctx, pageRoom)
	if err != nil {
		return nil, after, err
	}
	defer share.Release()
	last := p.batch.Cursor
	for len(text) < maxChunk && after.Position < last.Position {
		b, err := s.memory.Since(ctx, p.batch.Set, after, int(min(slowRead, last.Position-after.Position)))
		if err != nil {
			return nil, after, err
		}
		if b.After != after || len(b.Entries) == 0 {
			return nil, after, fmt.Errorf("the change memory was replaced after %v", after)
		}
		for i := range b.Entries {
			e := &b.Entries[i]
			if p.poll.filter.Match(&e.Change) {
				text = p.format.Page.Entry(text, p.batch.Set, e, false)
			}
			if after = e.Cursor; len(text) >= maxChunk {
				break
			}
		}
	}
	if after.Position == last.Position {
		if after != last {
			return nil, after, fmt.Errorf("the change memory was replaced before %v", last)
		}
		text = p.format.Page.Tail(text)
	}
	return text, after, nil
}
