package subscribe

import (
	"errors"
	"net/http"
	"os"
	"slices"
	"time"
)

// pieceSize is how many bytes a client must take within a write timeout.
const pieceSize = 16 << 10

// write writes a response in pieces, each with a deadline. A client may be slow, but
// it may not stop. At the end write removes the deadline, which would hold for the
// next request of the connection.
func (s *Server) write(w http.ResponseWriter, p []byte) (err error) {
	c := http.NewResponseController(w)
	// Not every ResponseWriter has deadlines; then the server's own hold.
	defer func() { _ = c.SetWriteDeadline(time.Time{}) }()
	var deadline time.Time
	for piece := range slices.Chunk(p, pieceSize) {
		deadline = time.Now().Add(s.opts.WriteTimeout)
		_ = c.SetWriteDeadline(deadline)
		if _, err = w.Write(piece); err != nil {
			break
		}
	}
	if err == nil {
		err = c.Flush()
	}
	if err != nil && !deadline.IsZero() && !time.Now().Before(deadline) { // over HTTP/2 the error itself does not say so
		err = errors.Join(err, os.ErrDeadlineExceeded)
	}
	return err
}
