package trial

import (
	"io"
	"net/http"
	"strings"
)

// A Reply answers an arrival.
type Reply func(w http.ResponseWriter, a *CallbackRequest, over <-chan struct{})

// Confirm is how a subscriber confirms its intent.
func Confirm(w http.ResponseWriter, a *CallbackRequest, _ <-chan struct{}) {
	ConfirmWith(http.StatusOK)(w, a, nil)
}

// ConfirmWith confirms with another status.
func ConfirmWith(code int) Reply {
	return func(w http.ResponseWriter, a *CallbackRequest, _ <-chan struct{}) {
		w.WriteHeader(code)
		_, _ = io.WriteString(w, a.Challenge()) // the hub may be gone
	}
}

// ReplyBody answers a verification with a body made of the challenge.
func ReplyBody(code int, body func(challenge string) string) Reply {
	return func(w http.ResponseWriter, a *CallbackRequest, _ <-chan struct{}) {
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body(a.Challenge()))
	}
}

// Status answers with a status, headers "Name: value", and no body.
func Status(code int, headers ...string) Reply {
	return func(w http.ResponseWriter, _ *CallbackRequest, _ <-chan struct{}) {
		for _, h := range headers {
			name, value, _ := strings.Cut(h, ": ")
			w.Header().Set(name, value)
		}
		w.WriteHeader(code)
	}
}

// Hang gives no answer until the callback's end.
func Hang(_ http.ResponseWriter, _ *CallbackRequest, over <-chan struct{}) { <-over }

// HangUntil answers only when it may.
func HangUntil(may <-chan struct{}, then Reply) Reply {
	return func(w http.ResponseWriter, a *CallbackRequest, over <-chan struct{}) {
		select {
		case <-may:
			then(w, a, over)
		case <-over:
		}
	}
}

// Before does something and then answers.
func Before(do func(), then Reply) Reply {
	return func(w http.ResponseWriter, a *CallbackRequest, over <-chan struct{}) {
		do()
		then(w, a, over)
	}
}

// HangUp closes the connection without an answer.
func HangUp(w http.ResponseWriter, _ *CallbackRequest, _ <-chan struct{}) {
	if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
		_ = conn.Close()
	}
}
