package redisconn

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/rshub/rshub/feed"
)

// Said returns the text of an error that Redis answered with. ok is false for any other
// error.
func Said(err error) (text string, ok bool) {
	if e, ok := errors.AsType[redis.Error](err); ok {
		return e.Error(), true
	}
	return "", false
}

// A sentence replaces the text of an error.
type sentence struct {
	text string
	err  error
}

func (s *sentence) Error() string { return s.text }
func (s *sentence) Unwrap() error { return s.err }

// explain says in words that Redis did not answer. If it never did, the error has advice:
// one end may speak TLS and the other not.
func (c *Conn) explain(err error) error {
	var text, advice string
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		text = "no answer from Redis in time"
		if c.tls {
			advice = "; if it does not speak TLS, its URL begins with redis:// or redis-sentinel://"
		}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		text = "Redis closed the connection"
		if !c.tls {
			advice = "; if it speaks TLS, its URL begins with rediss:// or rediss-sentinel://"
		}
	default:
		return err
	}
	if !c.answered.Load() {
		text += advice
	}
	return &sentence{text, err}
}

// Untrusted reports whether the certificate of Redis could not be verified. Such an error is
// not temporary.
func Untrusted(err error) bool {
	_, ok := errors.AsType[*tls.CertificateVerificationError](err)
	return ok
}

// meaning wraps an error with the matching error of package feed.
func meaning(err error) error {
	if _, ours := errors.AsType[refusal](err); ours {
		return err
	}
	text, answered := Said(err)
	switch {
	case !answered:
		return fmt.Errorf("%w: %w", feed.ErrUnavailable, err)
	case strings.Contains(text, "OOM command not allowed"):
		return fmt.Errorf("%w: %w", feed.ErrFull, err)
	case busy(err), starts(err, "NOAUTH", "WRONGPASS", "NOPERM", "MISCONF", "ASK"):
		return fmt.Errorf("%w: %w", feed.ErrUnavailable, err)
	}
	return err
}

// passing reports whether an error is temporary, so that another try makes
// sense.
func passing(err error) bool {
	if _, ours := errors.AsType[refusal](err); ours || errors.Is(err, redis.ErrClosed) {
		return false
	}
	if _, answered := Said(err); answered {
		return busy(err)
	}
	return true
}

// busy reports whether Redis cannot do a command now, or not on this server,
// but can do it later or elsewhere.
func busy(err error) bool {
	return crowded(err) || starts(err, "LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "BUSY", "NOREPLICAS", "MOVED")
}

// crowded reports whether Redis refused a connection because it has too many.
func crowded(err error) bool { return starts(err, "max number of clients") }

// Denied reports whether Redis refuses the credentials, or does not allow their user a
// command. Such an error is not temporary.
func Denied(err error) bool { return starts(err, "NOAUTH", "WRONGPASS", "NOPERM") }

// Forbidden reports whether Redis refuses this one command: the user has no right to it,
// or this Redis does not have it.
func Forbidden(err error) bool { return starts(err, "NOPERM", "unknown command") }

// starts reports whether an error that Redis answered with begins with one of the
// words. When a command of a script is refused, Redis says so in the middle of the
// error of the script.
func starts(err error, words ...string) bool {
	text, answered := Said(err)
	if !answered {
		return false
	}
	for _, w := range words {
		if redis.HasErrorPrefix(err, w) || strings.Contains(text, "-"+w+" ") {
			return true
		}
	}
	return false
}

// A refusal is an error that ends a call.
type refusal struct{ error }

func (r refusal) Unwrap() error { return r.error }

// Refuse makes an error of a step end the call: nothing is tried again, and Do returns
// the error as it is. (If Redis may have done an earlier try, Do returns feed.ErrUnknown
// instead.) Use Refuse when a script refuses to do its work, and for an answer that
// makes no sense.
func Refuse(err error) error { return refusal{err} }
