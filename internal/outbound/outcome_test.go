package outbound

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"
)

func TestOutcomes(t *testing.T) {
	for status, want := range map[int]Outcome{
		200: Success, 204: Success, 301: Redirect, 404: ClientError, 410: Gone,
		413: ClientError, 429: ClientError, 500: ServerError, 503: ServerError, 101: Other, 999: Other,
	} {
		if got := StatusOutcome(status); got != want {
			t.Errorf("StatusOutcome(%d) = %s, want %s", status, got, want)
		}
	}
	for _, test := range []struct {
		err  error
		want Outcome
	}{
		{&net.OpError{Op: "dial", Err: fmt.Errorf("%w: 10.0.0.1:80", ErrAddress)}, RefusedAddress},
		{fmt.Errorf("post: %w", context.DeadlineExceeded), Timeout},
		{&net.OpError{Op: "dial", Err: syscall.ETIMEDOUT}, Timeout},
		{&net.DNSError{Err: "no such host", IsNotFound: true}, Unreachable},
		{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, Unreachable},
		{&net.OpError{Op: "dial", Err: syscall.EHOSTUNREACH}, Unreachable},
		{&tls.CertificateVerificationError{Err: errors.New("expired")}, TLS},
		{io.ErrUnexpectedEOF, Other},
		{errors.New("malformed HTTP response"), Other},
	} {
		if got := Explain(test.err).Outcome; got != test.want {
			t.Errorf("Explain(%v).Outcome = %s, want %s", test.err, got, test.want)
		}
	}
}
