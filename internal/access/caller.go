package access

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/limit"
)

// A Caller is who makes a request.
type Caller struct {
	Name    string // empty: the caller has no token
	Rights  Rights
	Expires time.Time     // when the rights end; zero: they do not end by themselves
	Limits  *limit.Limits // the caller's own limits, which replace the limits for all callers; nil: none
	Mark    uint64        // differs between two tokens of the same name; 0: the caller has a JWT, or no token
	Key     string        // thumbprint of the key that verified the JWT; empty: the caller has no JWT
	Claim   string        // a clause on the claim with the JWT's rights, for refusals; empty: the caller has no JWT
	Ticket  bool          // the caller has only a ticket of who has the name, see Tickets

	// Private reports whether a set is private. It is asked for callers that have only
	// anyone's rights. The error is feed.ErrNoSet if there is no such set. Default: no
	// set is private.
	Private func(ctx context.Context, set string) (bool, error)

	now func() (Caller, error) // reads the token's rights anew; nil: they never change
}

// Now returns the caller with the rights that the same token gives at this moment. If
// the token is not valid any more, the error is the problem that a new request with it
// would get.
func (c Caller) Now() (Caller, error) {
	if c.now == nil {
		return c, nil
	}
	return c.now()
}

// An Authenticator finds out who makes a request. See Tokens, TokensFile, and package
// jwt. Its methods may be called concurrently.
type Authenticator interface {
	// Caller returns who makes r. The error is the problem to answer with. It blocks
	// at most until r's context is done.
	Caller(r *http.Request) (Caller, error)

	// Named returns the caller with a name as it is now. It is for subscriptions and
	// other things that outlive the token they were made with. The empty name stands for
	// callers without a token. ok is false if nobody has the name, or if its token has
	// expired.
	//
	// Only the issuer knows which rights the next JWT of a name will have. So for the
	// name of a caller with a JWT, Named returns a caller that may follow every set. The
	// code that keeps something for this caller must have checked the right before. It
	// must end what it keeps at Caller.Expires, or when ok is false. ok is false when the
	// issuer has withdrawn the key with the thumbprint key, which is Caller.Key of the
	// JWT's caller.
	Named(name, key string) (c Caller, ok bool)

	// Version returns a number that changes whenever the answers of Caller may change,
	// except when a token expires. After a change, Caller.Now returns the new rights.
	Version() uint64

	// Watch looks for changes until ctx is done, or returns at once if there can be
	// none.
	Watch(ctx context.Context)

	// Err returns why the newest tokens or keys are not in force, for instance a
	// mistake in their file. It returns nil if they are in force.
	Err() error
}

// NewNamed returns the Caller that Authenticator.Named returns for the name of a
// caller with a JWT.
func NewNamed(name, key string, anyone Rights) Caller {
	c := NewCaller(name, Rights{follow: []string{"*"}}, anyone, time.Time{}, nil)
	c.Key = key
	return c
}

// NewCaller returns a caller with a token. It may also do what callers without
// a token may do. now implements Caller.Now; nil if the rights never change.
func NewCaller(name string, rights, anyone Rights, expires time.Time, now func() (Caller, error)) Caller {
	rights.anyone = &anyone
	return Caller{Name: name, Rights: rights, Expires: expires, now: now}
}

// BearerToken returns the bearer token that a request carries (RFC 6750 section 2.1). It
// is empty if the request has none. If the request has another kind of Authorization, the
// error is the problem to answer with.
func BearerToken(r *http.Request) (string, error) {
	header := r.Header.Get("Authorization")
	if header == "" {
		return "", nil
	}
	scheme, token, ok := strings.Cut(header, " ")
	if token = strings.TrimSpace(token); !ok || token == "" || !strings.EqualFold(scheme, "Bearer") {
		return "", unauthorized("invalid_request", "the Authorization is not of the form Bearer TOKEN")
	}
	return token, nil
}

// Expired returns the problem to answer a request whose token has expired.
func Expired() *feed.Problem { return Unknown("the token has expired") }

// Unknown returns the problem to answer a request whose token is not known. why is the
// detail of the problem; it must show nothing of the token.
func Unknown(why string) *feed.Problem { return unauthorized("invalid_token", why) }
