package main

import (
	"io"
	"net/http"
	"time"
)

// What is read of a body after its request was refused.
const (
	readOnBytes = 64 << 20
	readOnTime  = 5 * time.Second
)

// readOn reads a body to its end, within bounds, when a request was refused
// before that: a connection that is closed with input unread is reset, and a
// client that sends all before it reads would never see why.
func readOn(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost && r.Method != http.MethodPut {
			next.ServeHTTP(w, r)
			return
		}
		body := &watchedBody{ReadCloser: r.Body}
		r.Body = body
		next.ServeHTTP(w, r)
		if body.ended || r.ContentLength == 0 || r.Header.Get("Expect") != "" { // who expects to be asked has not sent it
			return
		}
		c := http.NewResponseController(w)
		_ = c.Flush()
		_ = c.SetReadDeadline(time.Now().Add(readOnTime))
		_, _ = io.CopyN(io.Discard, body, readOnBytes)
	})
}

// A watchedBody knows whether it was read to its end, or cannot be.
type watchedBody struct {
	io.ReadCloser
	ended bool
}

func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.ended = b.ended || err != nil
	return n, err
}
