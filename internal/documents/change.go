package documents

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/accept"
)

// changeFormat returns the format in which r requests a change: JSON or a Change Notification.
func changeFormat(r *http.Request) *feed.Format {
	if accept.Media(r.Header, feed.JSON.MediaType, feed.XML.MediaType) == feed.XML.MediaType {
		return feed.XML
	}
	return feed.JSON
}

// change returns {base}/sets/{set}/changes/{position}: one change. It returns a 404 for a position that
// the log has not reached, and feed.ErrGone for one that retention removed. The document is not
// immutable, because after a failover another change may have the position.
func (d *Server) change(ctx context.Context, s feed.State, text string, format *feed.Format) (*document, error) {
	position, err := strconv.ParseUint(text, 10, 64)
	switch {
	case err != nil || position == 0 || position > s.Head.Position:
		return nil, notFound(fmt.Sprintf("no change %.40q; the newest change of the set is %d", text, s.Head.Position))
	case position <= s.Floor.Position:
		return nil, fmt.Errorf("change %d of set %q: %w", position, s.Set, feed.ErrGone)
	}
	before, err := d.cursorAt(ctx, s.Set, position-1)
	if err != nil {
		return nil, err
	}
	at, err := d.cursorAt(ctx, s.Set, position)
	if err != nil {
		return nil, err
	}
	return &document{
		tag:       d.tag("change", s.Set, s.Begin, at, format.Name),
		mediaType: format.MediaType,
		maxCached: d.cacheLimit(1),
		write: func(ctx context.Context, w io.Writer) error {
			b, err := d.log.Since(ctx, s.Set, before, 1)
			if err != nil {
				return fmt.Errorf("change %d of set %q: %w", position, s.Set, err)
			}
			if b.After != before || b.Cursor != at {
				return errMoved()
			}
			_, err = w.Write(append(format.Append(nil, b, ""), '\n'))
			return err
		},
	}, nil
}
