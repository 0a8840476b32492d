package server

import (
	"io"
	"net/http"
	"time"
)

// The limits of what readOn reads.
const (
	readOnBytes = 64 << 20
	readOnTime  = 5 * time.Second
)

// readOn reads a body to its end, within limits, if the request was answered before
// that. A connection that is closed with unread input is reset. A client that sends
// everything before it reads would then never see the answer.
func readOn(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost && r.Method != http.MethodPut {
			next.ServeHTTP(w, r)
			return
		}
		expects := r.Header.Get("Expect") != "" // boundHeader may empty the header
		body := &watchedBody{ReadCloser: r.Body}
		r.Body = body
		next.ServeHTTP(w, r)
		if body.ended || r.ContentLength == 0 || expects { // a client that sends Expect may not have sent the body
			return
		}
		c := http.NewResponseController(w)
		_ = c.Flush()
		_ = c.SetReadDeadline(time.Now().Add(readOnTime))
		_, _ = io.CopyN(io.Discard, body, readOnBytes)
	})
}

// A watchedBody knows whether a read has come to its end, or has failed.
type watchedBody struct {
	io.ReadCloser
	ended bool
}

func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.ended = b.ended || err != nil
	return n, err
}
