package server

import (
	"strings"
	"time"

	"github.com/rshub/rshub/callback"
	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/access"
)

// subscriberRights implements callback.Rights for the callers that made subscriptions.
type subscriberRights struct{ *callers }

var _ callback.Rights = subscriberRights{}

// rights returns the rights of subscribers, or nil if everyone may follow.
func (c *callers) rights() callback.Rights {
	if c.authenticator == nil {
		return nil
	}
	return subscriberRights{c}
}

// Version changes when the rights of callers or the private sets change.
func (m subscriberRights) Version() uint64 { return m.authenticator.Version() + m.changed.Load() }

// May returns why the subscriber may no longer follow the set, or "" and the expiry of its rights.
func (m subscriberRights) May(by, key string, anyone bool, set string) (until time.Time, why string) {
	if by == subscription.BySet {
		return time.Time{}, ""
	}
	name := subscription.NameOf(by)
	caller, ok := m.authenticator.CallerByName(name, key)
	if !ok {
		return time.Time{}, "the token of the subscriber is no longer valid"
	}
	rights := caller.Rights
	if anyone && strings.HasPrefix(name, access.JWTPrefix) { // only the rights of anyone are known without the JWT
		all, _ := m.authenticator.CallerByName("", "")
		rights = all.Rights
	}
	switch {
	case rights.MaySee(feed.State{Set: set, Description: feed.Description{Private: (*m.private.Load())[set]}}):
		return caller.Expires, ""
	case name == "":
		return time.Time{}, "following this set now requires a token"
	}
	return time.Time{}, "the token of the subscriber may no longer follow this set"
}
