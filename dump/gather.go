package dump

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"
	"sync/atomic"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/mirror/fetch"
	"github.com/rshub/rshub/outbound"
	"github.com/rshub/rshub/resourcesync"
)

// ahead is how many contents are fetched ahead, for one dump. They are taken in the order of
// their entries, so one that is slow holds back as many others at most.
const ahead = 256

// What is fetched ahead takes room on the disk: at most aheadBytes together, or one content if
// that is larger. A content of which nobody says how long it is counts unknownBytes.
const (
	aheadBytes   = 1 << 30
	unknownBytes = 16 << 20
)

// An item is an entry, and why its content is missing before anything was fetched; empty: it
// is to be fetched, unless the entry is a deletion.
type item struct {
	entry *feed.Entry
	why   string

	// Where the content is already, of which media type, and who is told that it is not read any
	// more. Nil: it is to be fetched.
	packed    func() (io.ReadCloser, error)
	mediaType string
	done      func()
}

// A gathered is an entry with what became of its content. The content is nil if the change
// is a deletion, or if why says why it is missing.
type gathered struct {
	item
	content *content
	got     *fetch.Got
}

// A gatherer fetches contents.
type gatherer struct {
	fetcher *fetch.Fetcher
	check   func(name, url string) error // whether a URL may be fetched
	dir     string                       // of temporary files
	most    int64                        // bytes of one content
}

// A reserve is what contents may take that are fetched ahead. Only dispatch takes from it.
type reserve struct {
	bytes atomic.Int64  // that are taken
	freed chan struct{} // of capacity 1; says that there are fewer
}

func (r *reserve) give(n int64) {
	r.bytes.Add(-n)
	select {
	case r.freed <- struct{}{}:
	default:
	}
}

// An upcoming is a gathered that is not there yet.
type upcoming struct {
	gathered
	reserved int64 // bytes of aheadBytes
	err      error
	ready    chan struct{} // closed when the rest is set
}

// each calls take with each of the items, in their order, while it fetches the next ones.
// A content is take's until it returns. The first error ends it. When each returns, none of its
// goroutines is left.
func (g *gatherer) each(ctx context.Context, items iter.Seq2[item, error], take func(*gathered) error) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	rooms := make(chan *content, ahead)
	for range ahead {
		rooms <- &content{dir: g.dir}
	}
	defer func() {
		cancel()
		wg.Wait()
		for range ahead {
			(<-rooms).close()
		}
	}()
	queue := make(chan *upcoming, ahead)
	failed := make(chan error, 1)
	used := &reserve{freed: make(chan struct{}, 1)}
	give := func(u *upcoming) { // there are as many places as contents
		rooms <- u.content
		used.give(u.reserved)
	}
	wg.Go(func() {
		defer close(queue)
		if err := g.dispatch(ctx, items, &wg, rooms, used, queue); err != nil {
			failed <- err
		}
	})
	var err error
	for u := range queue { // also after an error, so that all contents come back
		<-u.ready
		if err == nil {
			err = u.err
		}
		if err == nil {
			shown := u.gathered
			if shown.got == nil {
				shown.content = nil
			}
			err = take(&shown)
		}
		if u.content != nil {
			give(u)
		}
		if err != nil {
			cancel()
		}
	}
	select {
	case end := <-failed:
		if err == nil {
			err = end
		}
	default:
	}
	return err
}

// dispatch begins to fetch the contents of entries.
func (g *gatherer) dispatch(ctx context.Context, items iter.Seq2[item, error], wg *sync.WaitGroup, rooms chan *content, used *reserve, queue chan<- *upcoming) error {
	for it, err := range items {
		if err != nil {
			return err
		}
		u := &upcoming{ready: make(chan struct{})}
		u.item = it
		if it.entry.Change.Change == resourcesync.Deleted || it.why != "" {
			close(u.ready)
		} else {
			u.reserved = unknownBytes
			if n := it.entry.Change.Length; n != nil {
				u.reserved = min(*n, g.most)
			}
			for u.content == nil {
				from := rooms
				if n := used.bytes.Load(); n > 0 && n+u.reserved > aheadBytes {
					from = nil // wait for bytes, not only for a room
				}
				select {
				case u.content = <-from:
				case <-used.freed:
				case <-ctx.Done():
					if it.done != nil {
						it.done()
					}
					return context.Cause(ctx)
				}
			}
			used.bytes.Add(u.reserved)
			wg.Go(func() {
				defer close(u.ready)
				if u.done != nil {
					defer u.done()
				}
				u.err = g.fetch(ctx, u)
			})
		}
		select {
		case queue <- u:
		case <-ctx.Done():
			if u.content != nil {
				<-u.ready
				rooms <- u.content
			}
			return context.Cause(ctx)
		}
	}
	return nil
}

// fetch fetches one content. An error is none of the resource: it ends the dump.
func (g *gatherer) fetch(ctx context.Context, u *upcoming) error {
	if err := u.content.reset(); err != nil {
		return fmt.Errorf("write a temporary file: %w", err)
	}
	c := u.entry.Change
	if n := c.Length; n != nil && *n > g.most {
		u.why = fmt.Sprintf("it has %d bytes, and a package has at most %d", *n, g.most)
		return nil
	}
	if err := g.check("loc", c.Loc); err != nil {
		u.why = "the hub may not fetch it: " + err.Error()
		return nil
	}
	got, err := g.fetcher.Get(ctx, fetch.Wanted{Change: &c, Packed: u.packed}, u.content)
	if _, failed := errors.AsType[*fetch.Failure](err); failed {
		u.why = err.Error()
		return nil
	}
	if err != nil {
		return err
	}
	if got.Type == "" {
		got.Type = u.mediaType
	}
	u.got = got
	return nil
}

// explain says why there was no answer, without what followers must not see.
func explain(err error) error { return outbound.Explain(err) }
