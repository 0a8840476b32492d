package trial

import (
	"io"
	"net/http"
	"strings"
)

// A Reply responds to a request of the hub. done is closed when the test ends.
type Reply func(w http.ResponseWriter, a *CallbackRequest, done <-chan struct{})

// Confirm confirms a verification.
func Confirm(w http.ResponseWriter, a *CallbackRequest, _ <-chan struct{}) {
	ConfirmWith(http.StatusOK)(w, a, nil)
}

// ConfirmWith confirms with another status.
func ConfirmWith(code int) Reply {
	return func(w http.ResponseWriter, a *CallbackRequest, _ <-chan struct{}) {
		w.WriteHeader(code)
		_, _ = io.WriteString(w, a.Challenge()) // the hub may have been killed
	}
}

// ReplyBody responds to a verification with a body derived from the challenge.
func ReplyBody(code int, body func(challenge string) string) Reply {
	return func(w http.ResponseWriter, a *CallbackRequest, _ <-chan struct{}) {
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body(a.Challenge()))
	}
}

// Status responds with a status, headers of the form "Name: value", and no body.
func Status(code int, headers ...string) Reply {
	return func(w http.ResponseWriter, _ *CallbackRequest, _ <-chan struct{}) {
		for _, h := range headers {
			name, value, _ := strings.Cut(h, ": ")
			w.Header().Set(name, value)
		}
		w.WriteHeader(code)
	}
}

// Hang sends no response until the test ends.
func Hang(_ http.ResponseWriter, _ *CallbackRequest, done <-chan struct{}) { <-done }

// HangUntil waits for may, then calls another reply.
func HangUntil(may <-chan struct{}, then Reply) Reply {
	return func(w http.ResponseWriter, a *CallbackRequest, done <-chan struct{}) {
		select {
		case <-may:
			then(w, a, done)
		case <-done:
		}
	}
}

// Before calls a function before another reply.
func Before(do func(), then Reply) Reply {
	return func(w http.ResponseWriter, a *CallbackRequest, done <-chan struct{}) {
		do()
		then(w, a, done)
	}
}

// HangUp closes the connection without a response.
func HangUp(w http.ResponseWriter, _ *CallbackRequest, _ <-chan struct{}) {
	if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
		_ = conn.Close()
	}
}
