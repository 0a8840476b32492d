package documents

import (
	"context"
	"fmt"
	"io"
	"iter"

	"github.com/rshub/rshub/feed"
)

// A long document passes through stages, each in a goroutine of its own: the first reads and
// decodes entries, the second makes XML of them, the third compresses that or hands it to the
// client. So a long document takes as long as its longest stage where cores are to spare, and
// the same CPU.

// entries yields the entries after a cursor up to last, a page at a time. While the caller uses
// a page, the next one is read. If the log no longer has exactly these entries, an error comes
// at the end.
func (d *Server) entries(ctx context.Context, set string, after, last feed.Cursor) iter.Seq2[[]feed.Entry, error] {
	return func(yield func([]feed.Entry, error) bool) {
		reading, cancel := context.WithCancel(ctx)
		pages := make(chan []feed.Entry)
		var err error // of the reader; it is set before pages is closed
		go func() {
			defer close(pages)
			for after.Position < last.Position {
				var page []feed.Entry
				if page, err = d.page(reading, set, after, last); err != nil {
					return
				}
				after = page[len(page)-1].Cursor
				select {
				case pages <- page:
				case <-reading.Done():
					err = context.Cause(reading)
					return
				}
			}
			if after != last {
				err = moved()
			}
		}()
		defer func() { // whatever happens, the reader has ended
			cancel()
			for range pages {
			}
		}()
		for page := range pages {
			if !yield(page, nil) {
				return
			}
		}
		if err != nil {
			yield(nil, err)
		}
	}
}

// page reads entries after a cursor, and none behind last.
func (d *Server) page(ctx context.Context, set string, after, last feed.Cursor) ([]feed.Entry, error) {
	b, err := d.log.Since(ctx, set, after, int(min(readPage, last.Position-after.Position)))
	if err != nil {
		return nil, fmt.Errorf("set %q after %v: %w", set, after, err)
	}
	if b.After != after || len(b.Entries) == 0 {
		return nil, moved()
	}
	return b.Entries, nil
}

// A behind hands what is written to another goroutine, which writes it to w. As long as the
// writes are small it needs none: then it writes to w itself. Nobody may use w before Close has
// returned.
type behind struct {
	w     io.Writer
	full  chan []byte   // to the goroutine, which exists once this is not nil
	empty chan []byte   // and back
	ended chan struct{} // closed when the goroutine has ended, after err is set
	err   error
}

// Write takes p. An error is of w, and may be that of an earlier write.
func (b *behind) Write(p []byte) (int, error) {
	if b.full == nil {
		if len(p) < writePage {
			return b.w.Write(p)
		}
		b.full, b.empty, b.ended = make(chan []byte, 2), make(chan []byte, 2), make(chan struct{}) // there are two buffers, so full always has room for one
		b.empty <- nil
		b.empty <- nil
		go b.run()
	}
	select {
	case room := <-b.empty:
		b.full <- append(room[:0], p...)
		return len(p), nil
	case <-b.ended:
		return 0, b.err
	}
}

func (b *behind) run() {
	defer close(b.ended)
	for p := range b.full {
		if _, b.err = b.w.Write(p); b.err != nil {
			return
		}
		b.empty <- p
	}
}

// Close waits until all was written to w. It returns an error of w that Write may not have
// returned yet. It does not close w.
func (b *behind) Close() error {
	if b.full == nil {
		return nil
	}
	close(b.full)
	<-b.ended
	return b.err
}
