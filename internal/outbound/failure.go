package outbound

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
)

// A Failure is the reason why a request did not succeed. Its Text has no secrets, so it may be
// shown to the owner of the target.
type Failure struct {
	Text    string
	Outcome Outcome
	Status  int // HTTP status of the response; zero if there was none
}

// Error returns Text.
func (f *Failure) Error() string { return f.Text }

// StatusFailure returns the Failure for a response with a status. Its text starts with what.
func StatusFailure(what string, status int) *Failure {
	f := &Failure{what, StatusOutcome(status), status}
	if name := http.StatusText(status); name != "" {
		f.Text += ": " + name
	}
	if f.Outcome == Success { // a 2xx, but not the status that the caller requires
		f.Outcome = Other
	}
	return f
}

// Explain returns the Failure for a request without a response. Its text contains neither the URL,
// whose query may be secret, nor addresses of the hub's network.
func Explain(err error) *Failure {
	var dns *net.DNSError
	var reset streamError
	switch {
	case errors.Is(err, ErrAddress):
		return &Failure{Text: ErrAddress.Error(), Outcome: RefusedAddress}
	case errors.Is(err, ErrBusy):
		return &Failure{Text: ErrBusy.Error(), Outcome: Other}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), isTimeout(err):
		return &Failure{Text: "timeout: no response in time", Outcome: Timeout}
	case errors.Is(err, context.Canceled):
		return &Failure{Text: "canceled", Outcome: Other}
	case errors.As(err, &dns):
		return &Failure{Text: "host name not found", Outcome: Unreachable}
	case isTLS(err):
		return &Failure{Text: "TLS handshake failed", Outcome: TLS}
	case errors.Is(err, syscall.ECONNREFUSED):
		return &Failure{Text: "connection refused", Outcome: Unreachable}
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH):
		return &Failure{Text: "host is unreachable", Outcome: Unreachable}
	case errors.As(err, &reset):
		return &Failure{Text: fmt.Sprintf("stream reset by the server (%s)", reset.name()), Outcome: Other}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, io.ErrClosedPipe):
		return &Failure{Text: "connection closed before the response", Outcome: Other}
	}
	return &Failure{Text: "response is not HTTP", Outcome: Other}
}

// A streamError is an HTTP/2 stream that was reset. It has the fields of the unexported error
// of net/http, so that errors.As can convert it.
type streamError struct {
	StreamID uint32
	Code     uint32
	Cause    error
}

// Error returns the name of the code.
func (e streamError) Error() string { return "stream reset: " + e.name() }

// codes are the names of the error codes of HTTP/2 (RFC 9113, section 7).
var codes = [...]string{
	"NO_ERROR", "PROTOCOL_ERROR", "INTERNAL_ERROR", "FLOW_CONTROL_ERROR", "SETTINGS_TIMEOUT", "STREAM_CLOSED", "FRAME_SIZE_ERROR",
	"REFUSED_STREAM", "CANCEL", "COMPRESSION_ERROR", "CONNECT_ERROR", "ENHANCE_YOUR_CALM", "INADEQUATE_SECURITY", "HTTP_1_1_REQUIRED",
}

func (e streamError) name() string {
	if int(e.Code) < len(codes) {
		return codes[e.Code]
	}
	return fmt.Sprintf("code %d", e.Code)
}

// isTLS reports whether a TLS handshake failed. Most errors of crypto/tls have no exported type: an
// alert is an unexported type inside a net.OpError, and others are only text.
func isTLS(err error) bool {
	var unverified *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	if errors.As(err, &unverified) || errors.As(err, &record) || errors.Is(err, http.ErrSchemeMismatch) {
		return true
	}
	for ; err != nil; err = errors.Unwrap(err) {
		if strings.HasPrefix(err.Error(), "tls: ") {
			return true
		}
	}
	return false
}

// isTimeout reports whether an error is a timeout by its own account.
func isTimeout(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout()
}
