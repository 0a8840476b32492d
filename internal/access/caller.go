package access

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/limit"
)

// A Caller is the sender of a request.
type Caller struct {
	Name    string // empty if the caller has no token
	Rights  Rights
	Expires time.Time     // expiry of the rights; zero if they do not expire
	Limits  *limit.Limits // limits of this caller, which replace those for all callers, or nil
	TokenID uint64        // differs between two tokens of the same name; 0 if the caller has a JWT or no token
	Key     string        // thumbprint of the key that verified the JWT; empty without a JWT
	Claim   string        // description of the claim with the rights of the JWT, for refusals; empty without a JWT
	Ticket  bool          // whether the caller has only a ticket of the named caller; see Tickets

	// IsPrivate reports whether a set is private. It is called for callers that have only the
	// rights of anyone. The error is feed.ErrNoSet if there is no such set. Default: no set is
	// private.
	IsPrivate func(ctx context.Context, set string) (bool, error)

	refresh func() (Caller, error) // reads the current rights of the token; nil if they never change
}

// Refresh returns the caller with the current rights of its token. If the token is no longer valid,
// the error is the problem that a new request with the token would get.
func (c Caller) Refresh() (Caller, error) {
	if c.refresh == nil {
		return c, nil
	}
	return c.refresh()
}

// An Authenticator identifies callers. See Tokens, TokensFile, and package jwt. Its methods are
// safe for concurrent use.
type Authenticator interface {
	// Caller returns the caller of r. The error is the problem for the response. It blocks at most
	// until the context of r is done.
	Caller(r *http.Request) (Caller, error)

	// CallerByName returns the caller with a name and its current rights. It is for subscriptions
	// and other objects that outlive the token with which they were created. The empty name stands
	// for callers without a token. ok is false if no caller has the name, or if its token has
	// expired.
	//
	// Only the issuer knows which rights the next JWT of a name will have. So for the name of a
	// caller with a JWT, CallerByName returns a caller that may follow every set. Code that keeps
	// an object for this caller must have checked the right before, and must end the object at
	// Caller.Expires, or when ok is false. ok is false if the issuer has withdrawn the key with the
	// thumbprint key, which is Caller.Key of the caller of the JWT.
	CallerByName(name, key string) (c Caller, ok bool)

	// Version returns a number that changes whenever the results of Caller may change, except when
	// a token expires. After a change, Caller.Refresh returns the new rights.
	Version() uint64

	// Watch polls for changes until ctx is done. It returns immediately if there cannot be any.
	Watch(ctx context.Context)

	// Err returns why the newest tokens or keys are not in force, for example an error in their
	// file. It returns nil if they are in force.
	Err() error
}

// NewNamedCaller returns the result of Authenticator.CallerByName for the name of a caller with a
// JWT.
func NewNamedCaller(name, key string, anyone Rights) Caller {
	c := NewCaller(name, Rights{follow: []string{"*"}}, anyone, time.Time{}, nil)
	c.Key = key
	return c
}

// NewCaller returns a caller with a token. It also has the rights of callers without a token.
// refresh implements Caller.Refresh; it is nil if the rights never change.
func NewCaller(name string, rights, anyone Rights, expires time.Time, refresh func() (Caller, error)) Caller {
	rights.anyone = &anyone
	return Caller{Name: name, Rights: rights, Expires: expires, refresh: refresh}
}

// BearerToken returns the bearer token of a request (RFC 6750 section 2.1), or "" if there is none.
// If the request has another kind of Authorization, the error is the problem for the response.
func BearerToken(r *http.Request) (string, error) {
	header := r.Header.Get("Authorization")
	if header == "" {
		return "", nil
	}
	scheme, token, ok := strings.Cut(header, " ")
	if token = strings.TrimSpace(token); !ok || token == "" || !strings.EqualFold(scheme, "Bearer") {
		return "", unauthorized("invalid_request", "invalid Authorization; want Bearer TOKEN")
	}
	return token, nil
}

// ExpiredToken returns the problem of a request whose token has expired.
func ExpiredToken() *feed.Problem { return InvalidToken("the token has expired") }

// InvalidToken returns the problem of a request whose token is unknown or invalid. why is the
// detail of the problem. It must not contain any part of the token.
func InvalidToken(why string) *feed.Problem { return unauthorized("invalid_token", why) }
