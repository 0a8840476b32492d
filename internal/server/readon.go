package server

import (
	"io"
	"net/http"
	"time"
)

// Limits of drainBody.
const (
	drainBytes = 64 << 20
	drainTime  = 5 * time.Second
)

// drainBody reads the rest of a body, within limits, if the request was answered before its end. A
// connection closed with unread input is reset, and a client that sends everything before it reads
// would never receive the response.
func drainBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost && r.Method != http.MethodPut {
			next.ServeHTTP(w, r)
			return
		}
		expects := r.Header.Get("Expect") != "" // limitHeader may empty the header
		body := &trackedBody{ReadCloser: r.Body}
		r.Body = body
		next.ServeHTTP(w, r)
		if body.ended || r.ContentLength == 0 || expects { // a client that sends Expect may not have sent the body
			return
		}
		c := http.NewResponseController(w)
		_ = c.Flush()
		_ = c.SetReadDeadline(time.Now().Add(drainTime))
		_, _ = io.CopyN(io.Discard, body, drainBytes)
	})
}

// A trackedBody records whether a read reached the end or failed.
type trackedBody struct {
	io.ReadCloser
	ended bool
}

func (b *trackedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.ended = b.ended || err != nil
	return n, err
}
