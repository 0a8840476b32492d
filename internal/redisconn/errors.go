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

// ReplyText returns the text of an error that Redis replied with. ok is false for any other error.
func ReplyText(err error) (text string, ok bool) {
	if e, ok := errors.AsType[redis.Error](err); ok {
		return e.Error(), true
	}
	return "", false
}

// A textError replaces the text of an error.
type textError struct {
	text string
	err  error
}

func (s *textError) Error() string { return s.text }
func (s *textError) Unwrap() error { return s.err }

// explain describes errors that mean that Redis did not reply. If it has never replied, the error
// has advice, because only one end may use TLS.
func (c *Conn) explain(err error) error {
	var text, advice string
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		text = "timeout: no reply from Redis"
		if c.tls {
			advice = "; if it does not use TLS, its URL must start with redis:// or redis-sentinel://"
		}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		text = "Redis closed the connection"
		if !c.tls {
			advice = "; if it uses TLS, its URL must start with rediss:// or rediss-sentinel://"
		}
	default:
		return err
	}
	if !c.answered.Load() {
		text += advice
	}
	return &textError{text, err}
}

// Untrusted reports whether the certificate of Redis could not be verified. Such an error is
// permanent.
func Untrusted(err error) bool {
	_, ok := errors.AsType[*tls.CertificateVerificationError](err)
	return ok
}

// translate wraps an error with the corresponding error of package feed.
func translate(err error) error {
	if _, ours := errors.AsType[refusal](err); ours {
		return err
	}
	text, answered := ReplyText(err)
	switch {
	case !answered:
		return fmt.Errorf("%w: %w", feed.ErrUnavailable, err)
	case strings.Contains(text, "OOM command not allowed"):
		return fmt.Errorf("%w: %w", feed.ErrFull, err)
	case isBusy(err), hasPrefix(err, "NOAUTH", "WRONGPASS", "NOPERM", "MISCONF", "ASK"):
		return fmt.Errorf("%w: %w", feed.ErrUnavailable, err)
	}
	return err
}

// isTemporary reports whether an error is temporary, so that a retry may succeed.
func isTemporary(err error) bool {
	if _, ours := errors.AsType[refusal](err); ours || errors.Is(err, redis.ErrClosed) {
		return false
	}
	if _, answered := ReplyText(err); answered {
		return isBusy(err)
	}
	return true
}

// isBusy reports whether Redis cannot execute a command now or on this server, but may later or on
// another.
func isBusy(err error) bool {
	return isTooManyClients(err) || hasPrefix(err, "LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "BUSY", "NOREPLICAS", "MOVED")
}

// isTooManyClients reports whether Redis rejected a connection because it has too many.
func isTooManyClients(err error) bool { return hasPrefix(err, "max number of clients") }

// Denied reports whether Redis rejected the credentials, or does not permit a command to the user.
// Such an error is permanent.
func Denied(err error) bool { return hasPrefix(err, "NOAUTH", "WRONGPASS", "NOPERM") }

// Forbidden reports whether Redis rejected this one command: the user has no permission, or this
// Redis does not implement it.
func Forbidden(err error) bool { return hasPrefix(err, "NOPERM", "unknown command") }

// hasPrefix reports whether err is a reply of Redis that starts with one of the words. If a command
// of a script is rejected, the word is in the middle of the script's error.
func hasPrefix(err error, words ...string) bool {
	text, answered := ReplyText(err)
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

// Refuse returns an error that makes a step end the call: it is not retried, and Do returns the
// error as it is. (If Redis may have executed an earlier try, Do returns feed.ErrUnknown instead.)
// Use Refuse if a script refuses to do its work, and for invalid replies.
func Refuse(err error) error { return refusal{err} }
