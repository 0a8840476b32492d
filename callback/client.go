package callback

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"
)

// What is taken of an answer at most.
const (
	maxAnswer = 64 << 10        // bytes of a body, which is dropped
	drainTime = 2 * time.Second // for a body after a successful status: it only keeps the connection
)

// newTransport returns what makes all requests to callbacks. It takes no proxy
// from the environment, which would hide the address from the guard. There is no
// http.Client around it, for all that this would add is to follow redirects, which
// must not be, and a copy of the headers to do so. Deadlines come with each request.
func newTransport(a *addresses, o *Options) *http.Transport {
	dialer := &net.Dialer{Timeout: o.ConnectTimeout, KeepAlive: 30 * time.Second, Control: a.control}
	return &http.Transport{
		Proxy:                  nil,
		DialContext:            dial(dialer),
		ForceAttemptHTTP2:      true, // an own DialContext turns it off otherwise
		MaxIdleConns:           16_000,
		MaxIdleConnsPerHost:    o.PerHost, // all that there can be: else they are dialled again and again
		IdleConnTimeout:        90 * time.Second,
		TLSHandshakeTimeout:    o.ConnectTimeout,
		MaxResponseHeaderBytes: 16 << 10,
		DisableCompression:     true,
		ReadBufferSize:         1 << 10,
		WriteBufferSize:        4 << 10,
		TLSClientConfig: &tls.Config{
			MinVersion:         tls.VersionTLS12,
			RootCAs:            o.CAs,
			ClientSessionCache: tls.NewLRUClientSessionCache(16_000),
		},
	}
}

// drain reads what is left of an answer, so that its connection can be used
// again, and closes it. What is large or slow costs the connection: then cancel,
// which is the request's, ends it.
func drain(resp *http.Response, cancel context.CancelFunc) {
	defer resp.Body.Close()
	if resp.Body == http.NoBody || resp.StatusCode == http.StatusSwitchingProtocols {
		return // the latter's is the connection, which cancel would not end
	}
	slow := time.AfterFunc(drainTime, cancel)
	defer slow.Stop()
	_, _ = io.CopyN(io.Discard, resp.Body, maxAnswer) // the status has said it all
}

// A failure is why a request was no success. Its text may be shown to whoever it
// concerns.
type failure struct {
	text    string
	outcome outcome
}

func (f *failure) Error() string { return f.text }

// answered is the failure that an answer with a status is.
func answered(what string, status int) *failure {
	f := &failure{what, statusOutcome(status)}
	if name := http.StatusText(status); name != "" {
		f.text += ": " + name
	}
	if f.outcome == outcomeSuccess { // but not the one that was asked for
		f.outcome = outcomeOther
	}
	return f
}

// explain says why there was no answer, for the subscriber: without the callback,
// whose query may be a secret, and without addresses of the hub's network.
func explain(err error) *failure {
	var dns *net.DNSError
	switch {
	case errors.Is(err, ErrAddress):
		return &failure{ErrAddress.Error(), outcomeRefusedAddress}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), isTimeout(err):
		return &failure{"no answer in time", outcomeTimeout}
	case errors.Is(err, context.Canceled):
		return &failure{"given up", outcomeOther}
	case errors.As(err, &dns):
		return &failure{"the host's name was not found", outcomeUnreachable}
	case isTLS(err):
		return &failure{"the TLS handshake failed", outcomeTLS}
	case errors.Is(err, syscall.ECONNREFUSED):
		return &failure{"the connection was refused", outcomeUnreachable}
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH):
		return &failure{"the host cannot be reached", outcomeUnreachable}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, io.ErrClosedPipe):
		return &failure{"the connection was closed before the answer", outcomeOther}
	}
	return &failure{"the answer is not HTTP", outcomeOther}
}

// isTLS reports whether a TLS handshake failed. Most of what crypto/tls says of
// that has no type: an alert is an unexported one within a net.OpError, and the
// rest is text.
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

func isTimeout(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout()
}
