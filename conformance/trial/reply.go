package trial

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"time"
)

// A Reply answers an arrival.
type Reply func(w http.ResponseWriter, a *Arrival, over <-chan struct{})

// Confirm is how a subscriber confirms its intent.
func Confirm(w http.ResponseWriter, a *Arrival, _ <-chan struct{}) {
	ConfirmWith(http.StatusOK)(w, a, nil)
}

// ConfirmWith confirms with another status.
func ConfirmWith(code int) Reply {
	return func(w http.ResponseWriter, a *Arrival, _ <-chan struct{}) {
		w.WriteHeader(code)
		_, _ = io.WriteString(w, a.Challenge()) // the hub may be gone
	}
}

// Say answers a verification with a body made of the challenge.
func Say(code int, body func(challenge string) string) Reply {
	return func(w http.ResponseWriter, a *Arrival, _ <-chan struct{}) {
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body(a.Challenge()))
	}
}

// Status answers with a status, headers "Name: value", and no body.
func Status(code int, headers ...string) Reply {
	return func(w http.ResponseWriter, _ *Arrival, _ <-chan struct{}) {
		for _, h := range headers {
			name, value, _ := strings.Cut(h, ": ")
			w.Header().Set(name, value)
		}
		w.WriteHeader(code)
	}
}

// Hang gives no answer until the callback's end.
func Hang(_ http.ResponseWriter, _ *Arrival, over <-chan struct{}) { <-over }

// HangUntil answers only when it may.
func HangUntil(may <-chan struct{}, then Reply) Reply {
	return func(w http.ResponseWriter, a *Arrival, over <-chan struct{}) {
		select {
		case <-may:
			then(w, a, over)
		case <-over:
		}
	}
}

// First does something and then answers.
func First(do func(), then Reply) Reply {
	return func(w http.ResponseWriter, a *Arrival, over <-chan struct{}) {
		do()
		then(w, a, over)
	}
}

// HangUp closes the connection without an answer.
func HangUp(w http.ResponseWriter, _ *Arrival, _ <-chan struct{}) {
	if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
		_ = conn.Close()
	}
}

// Raw writes bytes to the connection, and closes it.
func Raw(text string) Reply {
	return func(w http.ResponseWriter, _ *Arrival, _ <-chan struct{}) {
		if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
			_, _ = io.WriteString(conn, text)
			_ = conn.Close()
		}
	}
}

// Trickle sends an answer that never ends, byte by byte.
func Trickle(w http.ResponseWriter, _ *Arrival, over <-chan struct{}) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\nX-Slow: "); err != nil {
		return
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-over:
			return
		case <-tick.C:
			if _, err := io.WriteString(conn, "x"); err != nil {
				return
			}
		}
	}
}

// Flood answers with so many bytes behind what begins the body, or as many as
// the hub takes.
func Flood(begin func(a *Arrival) string, n int64) Reply {
	return func(w http.ResponseWriter, a *Arrival, _ <-chan struct{}) {
		w.WriteHeader(http.StatusOK)
		_, _ = io.WriteString(w, begin(a))
		block := bytes.Repeat([]byte("x"), 64<<10)
		for ; n > 0; n -= int64(len(block)) {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	}
}
