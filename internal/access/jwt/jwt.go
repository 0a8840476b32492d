// Package jwt authenticates callers by JSON Web Tokens (RFC 7519), which an issuer such as an
// identity provider signs. A claim of the token has the rights of the caller.
//
// The package fetches and caches the keys of the issuer, and validates signature, times, issuer and
// audience. Package access enforces the rights.
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
	maxToken  = 16 << 10 // maximum size of a token in bytes
	maxName   = 200      // maximum size of sub in bytes
	maxCached = 4096     // maximum number of verified tokens in each of the two caches, fresh and old
	maxRights = 4 << 20  // maximum total size of rights in each of the two caches in bytes
	maxTries  = 16       // maximum number of keys that one token is checked with
	maxShown  = 200      // maximum size of a claim in a refusal in bytes
)

// rightsClaims are the claims that may hold the rights of the caller, as a string of words or as an
// array of strings. Only the first that is present counts. Standard issuers send scope (RFC 8693,
// section 4.2), others scp.
var rightsClaims = []string{"scope", "scp"}

// Options configures an Authenticator. Options without a default are required.
type Options struct {
	Issuer   string   // required iss of each token
	Audience []string // accepted values of aud

	// Skew is the maximum difference between the clocks of the issuer and of this machine at the
	// start of the validity of a token (nbf, iat). It does not prolong a token. Default: 1 minute.
	Skew time.Duration

	// Fallback authenticates callers without a JWT, and has the rights of callers without a token.
	// Default: only callers with a JWT have rights.
	Fallback *access.TokensFile
}

// An Authenticator is an access.Authenticator for JWTs.
type Authenticator struct {
	keys *Keys
	opts Options

	mu         sync.Mutex
	fresh, old map[[sha256.Size]byte]verifiedToken // verified tokens
	freshBytes int                                 // total size of the rights in fresh
}

var _ access.Authenticator = (*Authenticator)(nil)

// A verifiedToken is the content of a verified token.
type verifiedToken struct {
	name      string
	rights    access.Rights
	size      int    // size of the text of the rights in bytes
	claim     string // Caller.Claim
	notBefore time.Time
	expires   time.Time
	version   uint64 // version of the keys that verified the token
	key       string // thumbprint of the key
}

// New returns an Authenticator for tokens signed with one of the keys.
func New(keys *Keys, o Options) (*Authenticator, error) {
	if o.Issuer == "" || len(o.Audience) == 0 {
		return nil, errors.New("issuer or audience of JWTs is missing; without them, a token for another service would be valid")
	}
	if o.Skew == 0 {
		o.Skew = time.Minute
	}
	return &Authenticator{keys: keys, opts: o, fresh: map[[sha256.Size]byte]verifiedToken{}}, nil
}

// Version changes when the keys or the tokens of Options.Fallback change.
func (a *Authenticator) Version() uint64 {
	a.keys.mu.Lock()
	version := a.keys.version
	a.keys.mu.Unlock()
	if a.opts.Fallback != nil {
		version += a.opts.Fallback.Version()
	}
	return version
}

// Caller returns the caller with the JWT of r. It passes other bearer tokens to Options.Fallback.
func (a *Authenticator) Caller(r *http.Request) (access.Caller, error) {
	token, err := access.BearerToken(r)
	if err != nil {
		return access.Caller{}, err
	}
	if strings.Count(token, ".") == 2 {
		return a.caller(token)
	}
	if a.opts.Fallback != nil {
		return a.opts.Fallback.Caller(r)
	}
	if token != "" {
		return access.Caller{}, access.InvalidToken("the token is not a JWT, and the hub accepts no other tokens")
	}
	return access.Caller{}, nil
}

// CallerByName returns the caller with a name. For a caller with a JWT it can check only that the
// issuer still has the key; see access.Authenticator.
func (a *Authenticator) CallerByName(name, key string) (access.Caller, bool) {
	var anyone access.Rights
	if a.opts.Fallback != nil {
		anyone = a.opts.Fallback.Anyone()
	}
	switch {
	case strings.HasPrefix(name, access.JWTPrefix):
		return access.NewNamedCaller(name, key, anyone), a.keys.has(key)
	case a.opts.Fallback != nil:
		return a.opts.Fallback.CallerByName(name, key)
	}
	return access.Caller{}, name == ""
}

// caller returns the caller with a JWT.
func (a *Authenticator) caller(token string) (access.Caller, error) {
	if len(token) > maxToken {
		return access.Caller{}, access.InvalidToken(fmt.Sprintf("the JWT is longer than %d bytes", maxToken))
	}
	k, err := a.verifiedToken(token)
	if err != nil {
		return access.Caller{}, err
	}
	switch now := time.Now(); {
	case !now.Before(k.expires):
		return access.Caller{}, access.ExpiredToken()
	case now.Add(a.opts.Skew).Before(k.notBefore):
		return access.Caller{}, access.InvalidToken("the JWT is not yet valid (nbf or iat)")
	}
	var anyone access.Rights
	if a.opts.Fallback != nil {
		anyone = a.opts.Fallback.Anyone()
	}
	c := access.NewCaller(k.name, k.rights, anyone, k.expires, func() (access.Caller, error) { return a.caller(token) })
	c.Key, c.Claim = k.key, k.claim
	return c, nil
}

// verifiedToken returns the content of a token with a valid signature. It caches verified tokens
// until the keys change, up to maxCached.
func (a *Authenticator) verifiedToken(token string) (verifiedToken, error) {
	sum := sha256.Sum256([]byte(token))
	version := a.keysVersion()
	a.mu.Lock()
	k, ok := a.fresh[sum]
	if !ok {
		if k, ok = a.old[sum]; ok {
			a.cacheLocked(sum, k)
		}
	}
	a.mu.Unlock()
	if ok && k.version == version {
		return k, nil
	}
	k, err := a.verify(token)
	if err != nil {
		return verifiedToken{}, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.cacheLocked(sum, k)
	return k, nil
}

// keysVersion returns the version of the keys.
func (a *Authenticator) keysVersion() uint64 {
	a.keys.mu.Lock()
	defer a.keys.mu.Unlock()
	return a.keys.version
}

// cacheLocked adds a token to the cache. The caller must hold a.mu.
func (a *Authenticator) cacheLocked(sum [sha256.Size]byte, k verifiedToken) {
	if len(a.fresh) >= maxCached || a.freshBytes+k.size > maxRights {
		a.old, a.fresh, a.freshBytes = a.fresh, make(map[[sha256.Size]byte]verifiedToken), 0
	}
	a.freshBytes += k.size - a.fresh[sum].size
	a.fresh[sum] = k
}

// signatureAlgorithms are the algorithms that keys may have. They do not include "none".
var signatureAlgorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA, jose.HS256, jose.HS384, jose.HS512,
}

// verify checks the signature, and the claims that do not depend on the time. It looks up the key
// only in the list of the hub, and ignores the hints in the token about its key (jku, x5u, jwk),
// which an attacker can choose.
func (a *Authenticator) verify(token string) (verifiedToken, error) {
	parsed, err := jwt.ParseSigned(token, signatureAlgorithms)
	if err != nil || len(parsed.Headers) != 1 {
		return verifiedToken{}, access.InvalidToken("the token is not a JWT with an allowed signature algorithm") // err may contain a part of the token
	}
	header := parsed.Headers[0]
	keys, version := a.keys.find(header.KeyID, jose.SignatureAlgorithm(header.Algorithm))
	switch {
	case version == 0:
		return verifiedToken{}, unavailable()
	case len(keys) > maxTries: // impossible with a key ID; see checkTries
		return verifiedToken{}, access.InvalidToken(fmt.Sprintf("the JWT names no key (kid), and its issuer has %d keys for its algorithm; the hub tries at most %d", len(keys), maxTries))
	}
	var registered jwt.Claims
	var claims map[string]json.RawMessage
	err = errors.New("no matching key")
	thumbprint := ""
	for _, k := range keys {
		if err = parsed.Claims(k.key, &registered, &claims); err == nil {
			thumbprint = k.thumbprint
			break
		}
	}
	if err != nil {
		a.keys.requestFetch()
		return verifiedToken{}, access.InvalidToken("the JWT is not signed with a known key of its issuer, or its claims are unreadable")
	}
	return a.checkClaims(&registered, claims, version, thumbprint)
}

// checkClaims checks the claims that do not depend on the time.
func (a *Authenticator) checkClaims(registered *jwt.Claims, claims map[string]json.RawMessage, version uint64, key string) (verifiedToken, error) {
	intended := false
	for _, audience := range a.opts.Audience {
		intended = intended || registered.Audience.Contains(audience)
	}
	switch {
	case registered.Issuer != a.opts.Issuer:
		return verifiedToken{}, access.InvalidToken("the JWT is from another issuer (iss)")
	case !intended:
		return verifiedToken{}, access.InvalidToken("the JWT is for another audience (aud)")
	case registered.Expiry == nil:
		return verifiedToken{}, access.InvalidToken("the JWT has no expiry (exp)")
	case registered.Subject == "" || len(registered.Subject) > maxName || strings.ContainsFunc(registered.Subject, func(c rune) bool { return c < ' ' || c == 0x7F || c == 0xFFFD }):
		return verifiedToken{}, access.InvalidToken(fmt.Sprintf("the JWT has no valid subject (sub); want at most %d bytes", maxName))
	}
	name, claim := rightsClaim(claims)
	words, err := claimText(claim)
	if err != nil {
		return verifiedToken{}, access.InvalidToken("the JWT's claim " + name + ": " + err.Error())
	}
	rights, size, err := parseRights(words)
	if err != nil {
		return verifiedToken{}, access.InvalidToken("the JWT's claim " + name + ": " + err.Error())
	}
	notBefore := registered.NotBefore.Time()
	if issued := registered.IssuedAt.Time(); issued.After(notBefore) {
		notBefore = issued
	}
	return verifiedToken{access.JWTPrefix + registered.Subject, rights, size, describeClaim(name, words), notBefore, registered.Expiry.Time(), version, key}, nil
}

// rightsClaim returns the name and value of the claim with the rights of the caller. Both are empty
// if all rightsClaims are absent or null.
func rightsClaim(claims map[string]json.RawMessage) (name string, claim json.RawMessage) {
	for _, name := range rightsClaims {
		if claim := claims[name]; len(claim) > 0 && string(claim) != "null" {
			return name, claim
		}
	}
	return "", nil
}

// describeClaim returns the text of Caller.Claim for a claim. It shortens long values. An empty
// name means that the token has no such claim.
//
// The result is ASCII: it is also the reason of a close frame, which may be truncated at any byte.
func describeClaim(name, words string) string {
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

// parseRights parses the rights among the words of a claim. It ignores other words, which are meant
// for other services. size is the length of the rights.
func parseRights(words string) (r access.Rights, size int, err error) {
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

// claimText returns the words of a claim, separated by spaces.
func claimText(claim json.RawMessage) (string, error) {
	if len(claim) == 0 {
		return "", nil
	}
	var text string
	if json.Unmarshal(claim, &text) == nil {
		return text, nil
	}
	var list []string
	if json.Unmarshal(claim, &list) != nil {
		return "", errors.New("neither a string nor an array of strings")
	}
	return strings.Join(list, " "), nil
}

// unavailable returns the problem of a request with a JWT before the first keys were fetched.
func unavailable() error {
	p := problem.New(http.StatusServiceUnavailable, "keys-unavailable", "the hub has not yet fetched the keys of the issuer of JWTs; try again soon")
	p.RetryAfter = 5
	return p
}

// Watch polls for new keys and for new tokens of Options.Fallback until ctx is done.
func (a *Authenticator) Watch(ctx context.Context) {
	var wg sync.WaitGroup
	if a.opts.Fallback != nil {
		wg.Go(func() { a.opts.Fallback.Watch(ctx) })
	}
	a.keys.Watch(ctx)
	wg.Wait()
}

// Err returns why the newest keys or tokens are not in force, or nil if they are.
func (a *Authenticator) Err() error {
	err := a.keys.Err()
	if a.opts.Fallback != nil {
		err = errors.Join(a.opts.Fallback.Err(), err)
	}
	return err
}
