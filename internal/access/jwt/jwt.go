// Package jwt authenticates callers by JSON Web Tokens (RFC 7519), which an issuer such as an
// identity provider signs. A claim of the token has the caller's rights.
//
// It fetches and caches the issuer's keys, and validates signature, times, issuer and audience.
// What the rights allow is decided in package access.
package jwt

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/rshub/rshub/internal/access"
	"github.com/rshub/rshub/internal/problem"
)

const (
	maxToken  = 16 << 10 // the longest token, in bytes
	maxName   = 200      // the longest sub, in bytes
	maxKnown  = 4096     // verified tokens in each of the two caches, fresh and old
	maxRights = 4 << 20  // bytes of rights in each of the two caches
	maxTries  = 16       // the most keys that one token is checked with
	maxShown  = 200      // bytes of a claim that a refusal shows
)

// rightsClaims are the claims that may hold the caller's rights, as a string of words or
// as an array of strings. Only the first that is present counts. Standard issuers send
// scope (RFC 8693, section 4.2), others scp.
var rightsClaims = []string{"scope", "scp"}

// Options of an Authenticator. Those without a default are required.
type Options struct {
	Issuer   string   // iss of each token
	Audience []string // aud of each token is one of these

	// Skew is by how much the clocks of the issuer and of this machine may differ when a
	// token begins (nbf, iat). It does not prolong a token. Default 1 minute.
	Skew time.Duration

	// Others authenticates callers without a JWT, and has the rights of callers
	// without any token. Default: only callers with a JWT have rights.
	Others *access.TokensFile
}

// An Authenticator is an access.Authenticator for JWTs.
type Authenticator struct {
	keys *Keys
	opts Options

	mu         sync.Mutex
	fresh, old map[[sha256.Size]byte]known // tokens that were verified
	freshBytes int                         // bytes of rights in fresh
}

var _ access.Authenticator = (*Authenticator)(nil)

// A known is a verified token, and the version of the keys that verified it.
type known struct {
	name    string
	rights  access.Rights
	size    int    // bytes of the words that rights were parsed from
	claim   string // Caller.Claim
	begins  time.Time
	expires time.Time
	version uint64
	key     string // the thumbprint of the key
}

// New returns an Authenticator for tokens that one of the keys has signed.
func New(keys *Keys, o Options) (*Authenticator, error) {
	if o.Issuer == "" || len(o.Audience) == 0 {
		return nil, errors.New("JWTs need an issuer and an audience: a token for another service must not be valid here")
	}
	if o.Skew == 0 {
		o.Skew = time.Minute
	}
	return &Authenticator{keys: keys, opts: o, fresh: map[[sha256.Size]byte]known{}}, nil
}

// Version changes when the keys or the tokens of Options.Others change.
func (a *Authenticator) Version() uint64 {
	a.keys.mu.Lock()
	version := a.keys.version
	a.keys.mu.Unlock()
	if a.opts.Others != nil {
		version += a.opts.Others.Version()
	}
	return version
}

// Caller returns the caller whose JWT r carries. It passes a bearer token that does not
// look like a JWT on to Options.Others.
func (a *Authenticator) Caller(r *http.Request) (access.Caller, error) {
	token, err := access.BearerToken(r)
	if err != nil {
		return access.Caller{}, err
	}
	if strings.Count(token, ".") == 2 {
		return a.caller(token)
	}
	if a.opts.Others != nil {
		return a.opts.Others.Caller(r)
	}
	if token != "" {
		return access.Caller{}, access.Unknown("the token is no JWT, and no other tokens are known here")
	}
	return access.Caller{}, nil
}

// Named returns the caller with a name. For a caller with a JWT it can check only that
// the issuer still has the key; see access.Authenticator.
func (a *Authenticator) Named(name, key string) (access.Caller, bool) {
	var anyone access.Rights
	if a.opts.Others != nil {
		anyone = a.opts.Others.Anyone()
	}
	switch {
	case strings.HasPrefix(name, access.JWTPrefix):
		return access.NewNamed(name, key, anyone), a.keys.has(key)
	case a.opts.Others != nil:
		return a.opts.Others.Named(name, key)
	}
	return access.Caller{}, name == ""
}

// caller returns the caller whose JWT token is.
func (a *Authenticator) caller(token string) (access.Caller, error) {
	if len(token) > maxToken {
		return access.Caller{}, access.Unknown(fmt.Sprintf("the JWT is longer than %d bytes", maxToken))
	}
	k, err := a.known(token)
	if err != nil {
		return access.Caller{}, err
	}
	switch now := time.Now(); {
	case !now.Before(k.expires):
		return access.Caller{}, access.Expired()
	case now.Add(a.opts.Skew).Before(k.begins):
		return access.Caller{}, access.Unknown("the JWT is not good yet (nbf or iat)")
	}
	var anyone access.Rights
	if a.opts.Others != nil {
		anyone = a.opts.Others.Anyone()
	}
	c := access.NewCaller(k.name, k.rights, anyone, k.expires, func() (access.Caller, error) { return a.caller(token) })
	c.Key, c.Claim = k.key, k.claim
	return c, nil
}

// known returns the content of a token whose signature is valid. It caches verified
// tokens until the keys change, within maxKnown.
func (a *Authenticator) known(token string) (known, error) {
	sum := sha256.Sum256([]byte(token))
	version := a.keysVersion()
	a.mu.Lock()
	k, ok := a.fresh[sum]
	if !ok {
		if k, ok = a.old[sum]; ok {
			a.rememberLocked(sum, k)
		}
	}
	a.mu.Unlock()
	if ok && k.version == version {
		return k, nil
	}
	k, err := a.verify(token)
	if err != nil {
		return known{}, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.rememberLocked(sum, k)
	return k, nil
}

func (a *Authenticator) keysVersion() uint64 {
	a.keys.mu.Lock()
	defer a.keys.mu.Unlock()
	return a.keys.version
}

// rememberLocked needs a.mu held.
func (a *Authenticator) rememberLocked(sum [sha256.Size]byte, k known) {
	if len(a.fresh) >= maxKnown || a.freshBytes+k.size > maxRights {
		a.old, a.fresh, a.freshBytes = a.fresh, make(map[[sha256.Size]byte]known), 0
	}
	a.freshBytes += k.size - a.fresh[sum].size
	a.fresh[sum] = k
}

// all are the signature algorithms that keys may have. "none" is not among
// them.
var all = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA, jose.HS256, jose.HS384, jose.HS512,
}

// verify checks the signature, and those claims that do not depend on the time. It looks
// for the key only in the hub's own list. It ignores the token's own hints about its key
// (jku, x5u, jwk), which an attacker can choose.
func (a *Authenticator) verify(token string) (known, error) {
	parsed, err := jwt.ParseSigned(token, all)
	if err != nil || len(parsed.Headers) != 1 {
		return known{}, access.Unknown("the token is not a JWT with an allowed signature algorithm") // err may show a part of it
	}
	header := parsed.Headers[0]
	keys, version := a.keys.find(header.KeyID, jose.SignatureAlgorithm(header.Algorithm))
	switch {
	case version == 0:
		return known{}, unavailable()
	case len(keys) > maxTries: // with a key ID there are never more; see checkTries
		return known{}, access.Unknown(fmt.Sprintf("the JWT names no key (kid): its issuer has %d keys for its algorithm, and the hub tries at most %d", len(keys), maxTries))
	}
	var registered jwt.Claims
	var claims map[string]json.RawMessage
	err = errors.New("no key fits")
	by := ""
	for _, k := range keys {
		if err = parsed.Claims(k.key, &registered, &claims); err == nil {
			by = k.thumbprint
			break
		}
	}
	if err != nil {
		a.keys.ask()
		return known{}, access.Unknown("the JWT is not signed with a key of its issuer that is known here, or its claims cannot be read")
	}
	return a.read(&registered, claims, version, by)
}

// read checks the claims.
func (a *Authenticator) read(registered *jwt.Claims, claims map[string]json.RawMessage, version uint64, key string) (known, error) {
	intended := false
	for _, audience := range a.opts.Audience {
		intended = intended || registered.Audience.Contains(audience)
	}
	switch {
	case registered.Issuer != a.opts.Issuer:
		return known{}, access.Unknown("the JWT is from another issuer (iss)")
	case !intended:
		return known{}, access.Unknown("the JWT is for another audience (aud)")
	case registered.Expiry == nil:
		return known{}, access.Unknown("the JWT does not say when it expires (exp)")
	case registered.Subject == "" || len(registered.Subject) > maxName || strings.ContainsFunc(registered.Subject, func(c rune) bool { return c < ' ' || c == 0x7F || c == 0xFFFD }):
		return known{}, access.Unknown(fmt.Sprintf("the JWT does not say whose it is (sub), in at most %d bytes", maxName))
	}
	name, claim := rightsClaim(claims)
	words, err := readWords(claim)
	if err != nil {
		return known{}, access.Unknown("the JWT's claim " + name + ": " + err.Error())
	}
	rights, size, err := readRights(words)
	if err != nil {
		return known{}, access.Unknown("the JWT's claim " + name + ": " + err.Error())
	}
	begins := registered.NotBefore.Time()
	if issued := registered.IssuedAt.Time(); issued.After(begins) {
		begins = issued
	}
	return known{access.JWTPrefix + registered.Subject, rights, size, describe(name, words), begins, registered.Expiry.Time(), version, key}, nil
}

// rightsClaim returns the claim with the caller's rights and its name. If all
// rightsClaims are absent or null, both are empty.
func rightsClaim(claims map[string]json.RawMessage) (name string, claim json.RawMessage) {
	for _, name := range rightsClaims {
		if claim := claims[name]; len(claim) > 0 && string(claim) != "null" {
			return name, claim
		}
	}
	return "", nil
}

// describe returns the clause of Caller.Claim on a claim with some words. Only the start
// of long words is shown. An empty name means that the token has no such claim.
//
// The result is ASCII: it is also the reason of a close frame, which may be cut anywhere.
func describe(name, words string) string {
	if name == "" {
		return fmt.Sprintf("it has no claim %q or %q", rightsClaims[0], rightsClaims[1])
	}
	more := ""
	if len(words) > maxShown {
		cut := maxShown
		for !utf8.RuneStart(words[cut]) {
			cut--
		}
		words, more = words[:cut], "..."
	}
	return fmt.Sprintf("its claim %q holds %s%s", name, strconv.QuoteToASCII(words), more)
}

// readRights reads the rights among the words of a claim. It ignores other words, because
// they are meant for other services. size is the length of the rights.
func readRights(words string) (r access.Rights, size int, err error) {
	var rights []string
	for word := range strings.FieldsFuncSeq(words, func(c rune) bool { return c == ' ' || c == ',' }) {
		if word == "operate" || strings.HasPrefix(word, "publish:") || strings.HasPrefix(word, "follow:") {
			rights = append(rights, word)
		}
	}
	if len(rights) == 0 {
		return access.Rights{}, 0, nil
	}
	joined := strings.Join(rights, ",")
	r, err = access.ParseRights(joined)
	return r, len(joined), err
}

// readWords returns the words of a claim, separated by spaces.
func readWords(claim json.RawMessage) (string, error) {
	if len(claim) == 0 {
		return "", nil
	}
	var text string
	if json.Unmarshal(claim, &text) == nil {
		return text, nil
	}
	var list []string
	if json.Unmarshal(claim, &list) != nil {
		return "", errors.New("it is neither a string nor an array of strings")
	}
	return strings.Join(list, " "), nil
}

func unavailable() error {
	p := problem.New(http.StatusServiceUnavailable, "keys-unavailable", "this hub could not get the keys of the issuer of JWTs yet; try again soon")
	p.RetryAfter = 5
	return p
}

// Watch looks for other keys, and for other tokens of Options.Others, until ctx is done.
func (a *Authenticator) Watch(ctx context.Context) {
	var wg sync.WaitGroup
	if a.opts.Others != nil {
		wg.Go(func() { a.opts.Others.Watch(ctx) })
	}
	a.keys.Watch(ctx)
	wg.Wait()
}

// Err returns why the newest keys or tokens are not in force. It is nil if they are.
func (a *Authenticator) Err() error {
	err := a.keys.Err()
	if a.opts.Others != nil {
		err = errors.Join(a.opts.Others.Err(), err)
	}
	return err
}
