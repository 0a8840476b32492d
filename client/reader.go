package client

import (
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/rshub/rshub/internal/zst"
	"github.com/rshub/rshub/resourcesync"
)

const (
	pageTimeout = 30 * time.Second // of a whole page, without the time that the hub waits for changes
	maxPage     = 64 << 20         // bytes of a page
	longestWait = time.Hour        // that an answer may ask for: a page for maintenance, or a wrong clock, asks for days
)

// A reader reads one page after another of a set's topic.
type reader struct {
	client *Client
	set    string

	limit int  // how many entries to ask for; it falls while the connection is slow
	most  int  // the limit is not more; it falls when pages are too large
	begun bool // a page has come
	tries int  // tries that failed since the last page
}

// came says that a page has come.
func (r *reader) came() { r.begun, r.tries, r.limit = true, 0, min(2*r.limit, r.most) }

// get asks once for a page, which the hub may hold back for as long as wait. read reads
// the answer.
//
// get uses the Client's own URL and not the "next" URL of the page before. That one
// begins with the URL by which the hub knows itself. Behind a proxy it may name another
// host, and the token must not go there.
func (r *reader) get(ctx context.Context, query url.Values, wait time.Duration, read func(*http.Response) error) error {
	c := r.client
	query.Set("limit", strconv.Itoa(r.limit))
	ctx, cancel := context.WithTimeout(ctx, pageTimeout+wait)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base.Topic(r.set)+"?"+query.Encode(), nil)
	if err != nil {
		return fmt.Errorf("read set %q: %w", r.set, err)
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Accept-Encoding", "zstd")
	return c.exchange(req, func(resp *http.Response) error {
		if t, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); t != "application/json" {
			return fmt.Errorf("%s answers 200, but %w", c.base.Topic(r.set), ErrNoHub)
		}
		if resp.Header.Get("Content-Encoding") == "zstd" {
			text, err := zst.NewReader(resp.Body)
			if err != nil {
				return fmt.Errorf("decompress a page of %s: %w", c.base.Topic(r.set), err)
			}
			defer text.Close()
			resp.Body = text
		}
		return read(resp)
	})
}

// unread returns the error for a page that could not be read because of err.
func (r *reader) unread(err error) error {
	topic := r.client.base.Topic(r.set)
	if errors.Is(err, resourcesync.ErrTooLarge) {
		return fmt.Errorf("read %s: %w", topic, err)
	}
	return fmt.Errorf("%s answers 200, but %w (%v)", topic, ErrNoHub, err)
}

// failed returns how long to wait after err before the next try, or the error that ends
// the reading.
func (r *reader) failed(err error) (time.Duration, error) {
	// A Refused is ErrTooLarge too, but a smaller page does not change the hub's mind.
	_, refused := errors.AsType[*Refused](err)
	if !refused && errors.Is(err, resourcesync.ErrTooLarge) && r.limit > 1 {
		r.limit /= 2
		r.most = r.limit
		return 0, nil
	}
	u, unavailable := errors.AsType[*Unavailable](err)
	// After one good answer the URL is known to be right, so a strange answer
	// is an outage.
	if !r.begun && (!unavailable || u.Lasting) || !unavailable && !errors.Is(err, ErrNoHub) {
		return 0, err
	}
	wait := pause(r.tries)
	if unavailable {
		wait = max(wait, min(u.after, longestWait))
		if u.slow {
			r.limit = max(r.limit/2, 1)
		}
	}
	r.tries++
	r.client.opts.Note(err, wait)
	return wait, nil
}
