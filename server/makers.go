package server

import (
	"time"

	"github.com/rshub/rshub/callback"
	"github.com/rshub/rshub/callback/subscription"
)

// makers are the callers who have made WebSub subscriptions. It is callback.Rights.
type makers struct{ *callers }

var _ callback.Rights = makers{}

// rights returns what says who may go on following; nil: everybody may.
func (c *callers) rights() callback.Rights {
	if c.authenticator == nil {
		return nil
	}
	return makers{c}
}

// Version changes with what callers may do.
func (m makers) Version() uint64 { return m.authenticator.Version() }

// May returns why whoever made a subscription may not follow its set any more.
func (m makers) May(by, set string) (until time.Time, why string) {
	name := subscription.NameOf(by)
	caller, ok := m.authenticator.Named(name)
	switch {
	case !ok:
		return time.Time{}, "the token that it was made with is not valid any more"
	case caller.Rights.Follow(set):
		return caller.Expires, ""
	case name == "":
		return time.Time{}, "a token is needed to follow this set now"
	}
	return time.Time{}, "the token that it was made with may not follow this set any more"
}
