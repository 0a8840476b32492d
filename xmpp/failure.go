package xmpp

import (
	"context"
	"errors"
	"net"
	"slices"
)

// A Failure is an error that the XMPP server or the pubsub service answered.
type Failure struct {
	Condition string // such as forbidden: RFC 6120, sections 4.9.3 and 8.3.3
	Specific  string // a condition of XEP-0060 beside it, such as payload-too-big; may be empty
	Text      string // for people; may be empty
	Stream    bool   // it ended the connection
}

// Error returns what was answered.
func (f *Failure) Error() string {
	text := "the pubsub service answers "
	if f.Stream {
		text = "the XMPP server ended the connection: "
	}
	text += f.Condition
	if f.Specific != "" {
		text += " (" + f.Specific + ")"
	}
	if f.Text != "" {
		text += ": " + f.Text
	}
	if hint := hints[f.Condition]; hint != "" && f.Permanent() {
		text += "; " + hint
	}
	return text
}

// hints say what an operator can do.
var hints = map[string]string{
	"not-authorized": "look whether the secret of the component is the same there",
	"host-unknown":   "the server has no component of this domain",
	"forbidden":      "let the component create nodes there, and publish to them",
	"not-allowed":    "let the component create nodes there, and publish to them",
}

// permanent are the conditions that only an operator can cure.
var permanent = []string{
	"bad-request", "feature-not-implemented", "forbidden", "host-gone", "host-unknown", "improper-addressing", "invalid-from", "invalid-namespace",
	"jid-malformed", "not-allowed", "not-authorized", "payment-required", "registration-required", "subscription-required", "unsupported-version",
}

// Permanent reports whether only an operator can cure it, so that it is tried again seldom.
func (f *Failure) Permanent() bool { return slices.Contains(permanent, f.Condition) }

// tooBig reports whether a smaller stanza may do. A server that refuses one that is too big
// ends the connection.
func (f *Failure) tooBig() bool {
	return f.Specific == "payload-too-big" || f.Stream && f.Condition == "policy-violation"
}

// reason returns the reason of an error for the metrics.
func reason(err error) string {
	f, ok := errors.AsType[*Failure](err)
	switch {
	case ok && f.Condition == "conflict" && f.Stream:
		return "conflict"
	case ok:
		return "refused"
	case errors.Is(err, errPrivate):
		return "private"
	case errors.Is(err, context.DeadlineExceeded), isTimeout(err):
		return "timeout"
	}
	return "connection"
}

// reasons are all that reason returns.
var reasons = []string{"conflict", "connection", "private", "refused", "timeout"}

func isTimeout(err error) bool {
	e, ok := errors.AsType[net.Error](err)
	return ok && e.Timeout()
}
