package server

import (
	"net/http"
	"time"
)

// maxPiece is how many bytes of an answer the client must take within one deadline.
const maxPiece = 64 << 10

// withDeadlines cuts the connections of clients that do not take their answers. Each
// piece of an answer has a deadline of its own, so a large answer may take long.
// net/http removes the last deadline before the next request on a connection. Over
// HTTP/2 a deadline also ends an answer that has begun and is silent, so an answer that
// waits in its middle, such as an event stream, removes its deadline meanwhile.
func withDeadlines(next http.Handler, timeout time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(&pieceWriter{ResponseWriter: w, conn: http.NewResponseController(w), timeout: timeout}, r)
	})
}

type pieceWriter struct {
	http.ResponseWriter
	conn    *http.ResponseController
	timeout time.Duration
}

// Unwrap lets http.ResponseController find what the connection can do.
func (p *pieceWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }

func (p *pieceWriter) extend() { _ = p.conn.SetWriteDeadline(time.Now().Add(p.timeout)) }

func (p *pieceWriter) WriteHeader(status int) {
	p.extend()
	p.ResponseWriter.WriteHeader(status)
}

func (p *pieceWriter) Write(b []byte) (n int, err error) {
	for {
		piece := b[n:min(n+maxPiece, len(b))]
		p.extend()
		m, err := p.ResponseWriter.Write(piece)
		if n += m; err != nil || n == len(b) {
			return n, err
		}
	}
}
