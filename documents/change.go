package documents

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/accept"
	"github.com/rshub/rshub/problem"
)

// changeFormats are the forms of one change. Without a preference it is the first.
var changeFormats = []*feed.Format{feed.JSON, feed.XML}

// serveChange answers {base}/sets/{set}/changes/{position}: one change, in the form of a page
// or of a change notification. It returns a 404 for a position that the log has not reached,
// and feed.ErrGone for one that it does not keep any more.
func (d *Server) serveChange(w http.ResponseWriter, r *http.Request, set, text string) error {
	w.Header().Add("Vary", "Accept")
	if err := problem.OnlyRead(r, "GET, HEAD"); err != nil {
		return err
	}
	format := changeFormats[0]
	if accept.Media(r.Header, feed.JSON.MediaType, feed.XML.MediaType) == feed.XML.MediaType {
		format = feed.XML
	}
	b, history, err := d.change(r.Context(), set, text)
	if err != nil {
		return err
	}
	etag := `"` + d.tag("change", set, history, b.Cursor, format.Name) + `"`
	h := w.Header()
	h.Set("Etag", etag)
	h.Set("Cache-Control", "no-cache") // after a failover another change may have the position
	if notModified(r.Header, etag, time.Time{}) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	body := append(format.Append(nil, b, ""), '\n')
	h.Set("Content-Type", format.MediaType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // the client may be gone
	}
	return nil
}

// change returns the change at a position, as a batch, and which log has it.
func (d *Server) change(ctx context.Context, set, text string) (b *feed.Batch, log string, err error) {
	s, err := d.log.State(ctx, set)
	if err != nil {
		return nil, "", fmt.Errorf("state of set %q: %w", set, err)
	}
	position, err := strconv.ParseUint(text, 10, 64)
	switch {
	case err != nil || position == 0 || position > s.Head.Position:
		return nil, "", notFound(fmt.Sprintf("there is no change %.40q: the set has had %d", text, s.Head.Position))
	case position <= s.Floor.Position:
		return nil, "", fmt.Errorf("change %d of set %q: %w", position, set, feed.ErrGone)
	}
	before, err := d.at(ctx, set, position-1)
	if err != nil {
		return nil, "", err
	}
	b, err = d.log.Since(ctx, set, before, 1)
	if err != nil {
		return nil, "", fmt.Errorf("change %d of set %q: %w", position, set, err)
	}
	if b.After != before || len(b.Entries) != 1 {
		return nil, "", moved()
	}
	return b, history(s), nil
}
