package access

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/rshub/rshub/limit"
	"github.com/rshub/rshub/problem"
)

// A Caller is who makes a request.
type Caller struct {
	Name    string // empty: a caller without a token
	Rights  Rights
	Expires time.Time     // when the rights end; zero: they do not end by themselves
	Limits  *limit.Limits // limits of its own, which count before those of all callers; nil: it has none
	Mark    uint64        // tells one token of a name from the next; 0: the caller has a JWT, or no token

	// Private reports whether a set is private, for callers who have only anyone's rights.
	// The error is feed.ErrNoSet if there is no such set. Default: no set is private.
	Private func(ctx context.Context, set string) (bool, error)

	now func() (Caller, error) // who has the same token at this moment; nil: nothing changes
}

// Now returns the caller with the rights that the same token gives at this moment. The
// error is the problem that a request would get, if the token is not valid any more.
func (c Caller) Now() (Caller, error) {
	if c.now == nil {
		return c, nil
	}
	return c.now()
}

// An Authenticator finds out who makes a request. See Tokens, TokensFile, and package jwt.
// Its methods may be called at the same time.
type Authenticator interface {
	// Caller returns who makes r. The error is the problem to answer with. It does not
	// block for longer than r's context lasts.
	Caller(r *http.Request) (Caller, error)

	// Named returns the caller of a name as it is now, for what belongs to a caller and
	// outlives its token. The empty name is that of callers without a token. ok is false if
	// nobody has the name, or its token has expired.
	//
	// Nobody but the issuer knows what the next JWT of a name allows. So the caller of such
	// a name may follow every set: whoever keeps something for that caller has checked the
	// right once, and ends it at Caller.Expires.
	Named(name string) (c Caller, ok bool)

	// Version is a number that is another one whenever Caller may answer otherwise
	// than before, other than because a time has come. Caller.Now tells what it is now.
	Version() uint64

	// Watch looks for changes until ctx is done, or until there can be none any more.
	Watch(ctx context.Context)

	// Err returns why what is newest is not in force, such as a file with a mistake. It
	// is nil if it is.
	Err() error
}

// NewNamed returns what Authenticator.Named does for the name of a caller with a JWT.
func NewNamed(name string, anyone Rights) Caller {
	return NewCaller(name, Rights{follow: []string{"*"}}, anyone, time.Time{}, nil)
}

// NewCaller returns a caller with a token, who may also do what anyone may. now is
// Caller.Now; nil if nothing changes.
func NewCaller(name string, rights, anyone Rights, expires time.Time, now func() (Caller, error)) Caller {
	rights.anyone = &anyone
	return Caller{Name: name, Rights: rights, Expires: expires, now: now}
}

// BearerToken returns the bearer token that a request carries (RFC 6750 section 2.1). It is
// empty if the request has none. The error is the problem of another kind of Authorization.
func BearerToken(r *http.Request) (string, error) {
	header := r.Header.Get("Authorization")
	if header == "" {
		return "", nil
	}
	scheme, token, ok := strings.Cut(header, " ")
	if token = strings.TrimSpace(token); !ok || token == "" || !strings.EqualFold(scheme, "Bearer") {
		return "", unauthorized("invalid_request", "the header Authorization is not of the form Bearer TOKEN")
	}
	return token, nil
}

// Expired returns the problem of a token whose time is over.
func Expired() *problem.Problem { return Unknown("the token has expired") }

// Unknown returns the problem of a token that nobody here knows. why may say more; it shows
// nothing of the token.
func Unknown(why string) *problem.Problem { return unauthorized("invalid_token", why) }
