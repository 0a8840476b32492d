package server

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/rshub/rshub/internal/access"
	"github.com/rshub/rshub/internal/access/jwt"
	"github.com/rshub/rshub/internal/access/ticket"
)

// A callerKind is a kind of caller. Each caller has its own sets, whose names share a prefix.
type callerKind struct {
	name          string
	has           []right                                           // rights for its sets
	bad           bool                                              // whether its credentials are invalid
	anonymous     bool                                              // whether it has no credentials
	authorization func(t *testing.T, o *issuer, sets string) string // returns the header, for sets with a prefix; nil if it sends none

	// ticket returns the ticket for one set that the caller sends instead of the header of its
	// holder; nil if it sends none.
	ticket func(t *testing.T, m *matrix, holder access.Caller, set string) string
	cookie bool // whether the ticket is in a cookie
}

// forMethod returns the kind as which the caller counts for a method. A ticket allows only reading, and an
// invalid one in a cookie counts as none.
func (k *callerKind) forMethod(method string) callerKind {
	if k.ticket != nil && (method != http.MethodGet && method != http.MethodHead || k.bad && k.cookie) {
		return callerKind{name: k.name, anonymous: true}
	}
	return *k
}

// An issuer issues credentials to callers.
type issuer struct {
	file    strings.Builder // tokens file
	tokens  int             // number of tokens
	keys    map[jose.SignatureAlgorithm]any
	foreign *ecdsa.PrivateKey // key that does not belong to the issuer
	dir     string            // directory of the files
}

const (
	matrixIssuer   = "https://issuer.example.org/"
	matrixAudience = "https://hub.example.org"
)

// rsaKeyOnce returns one key for all tests, because generating one is slow.
var rsaKeyOnce = sync.OnceValues(func() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, 2048) })

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	rsaKey, err := rsaKeyOnce()
	if err != nil {
		t.Fatal(err)
	}
	o := &issuer{dir: t.TempDir(), keys: map[jose.SignatureAlgorithm]any{jose.RS256: rsaKey, jose.PS256: rsaKey, jose.HS256: []byte("a secret of thirty-two bytes or more")}}
	for algorithm, curve := range map[jose.SignatureAlgorithm]elliptic.Curve{jose.ES256: elliptic.P256(), jose.ES384: elliptic.P384(), jose.ES512: elliptic.P521(), "": elliptic.P256()} {
		key, err := ecdsa.GenerateKey(curve, rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		if algorithm == "" {
			o.foreign = key
		} else {
			o.keys[algorithm] = key
		}
	}
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	o.keys[jose.EdDSA] = key
	return o
}

// token returns a new token with rights.
func (o *issuer) token(rights string, more ...string) string {
	token, digest := access.NewToken()
	o.tokens++
	fmt.Fprintf(&o.file, "caller%d %s %s %s\n", o.tokens, digest, rights, strings.Join(more, " "))
	return token
}

// jwt returns a JWT with rights. changes replace claims; nil removes one.
func (o *issuer) jwt(t *testing.T, algorithm jose.SignatureAlgorithm, rights string, changes map[string]any) string {
	t.Helper()
	return signJWT(t, algorithm, o.keys[algorithm], rights, changes)
}

func signJWT(t *testing.T, algorithm jose.SignatureAlgorithm, key any, rights string, changes map[string]any) string {
	t.Helper()
	claims := map[string]any{"iss": matrixIssuer, "aud": matrixAudience, "sub": "ann", "scope": rights, "iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix()}
	maps.Copy(claims, changes)
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: jose.JSONWebKey{KeyID: string(algorithm), Key: key}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	object, err := signer.Sign(payload)
	if err != nil {
		t.Fatal(err)
	}
	text, err := object.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// writeKeys writes the public keys of the issuer.
func (o *issuer) writeKeys(t *testing.T) {
	t.Helper()
	var set jose.JSONWebKeySet
	for algorithm, key := range o.keys {
		if signer, ok := key.(interface{ Public() any }); ok {
			key = signer.Public()
		}
		k := jose.JSONWebKey{KeyID: string(algorithm), Key: key}
		if public := k.Public(); public.Key != nil {
			k = public // symmetric keys have none
		}
		set.Keys = append(set.Keys, k)
	}
	keys, err := json.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(o.dir, "keys"), string(keys))
}

// open returns an authenticator of all callers. anyone are the rights of anyone.
func (o *issuer) open(t *testing.T, anyone string) access.Authenticator {
	t.Helper()
	if anyone != "" {
		fmt.Fprintf(&o.file, "%s - %s\n", access.Anyone, anyone)
	}
	tokens := &tokensFile{path: filepath.Join(o.dir, "tokens")}
	tokens.write(t, o.file.String())
	o.writeKeys(t)
	known, err := jwt.OpenKeys(filepath.Join(o.dir, "keys"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	a, err := jwt.New(known, jwt.Options{Issuer: matrixIssuer, Audience: []string{matrixAudience}, Fallback: tokens.open(t)})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// rightsOf returns the text of rights for all sets with a prefix.
func rightsOf(sets string, has ...right) string {
	var all []string
	for _, r := range has {
		text := r.String()
		if r != operate {
			text += ":" + sets + "*"
		}
		all = append(all, text)
	}
	return strings.Join(all, ",")
}

// withToken returns the kind of callers whose token has rights.
func withToken(name string, has ...right) callerKind {
	return callerKind{name: name, has: has, authorization: func(_ *testing.T, o *issuer, sets string) string { return "Bearer " + o.token(rightsOf(sets, has...)) }}
}

// withJWT returns the kind of callers whose JWT has rights.
func withJWT(algorithm jose.SignatureAlgorithm, has ...right) callerKind {
	return callerKind{name: fmt.Sprintf("JWT %s%v", algorithm, has), has: has, authorization: func(t *testing.T, o *issuer, sets string) string {
		return "Bearer " + o.jwt(t, algorithm, rightsOf(sets, has...), nil)
	}}
}

// badJWT returns the kind of callers with an invalid JWT, which claims all rights.
func badJWT(name string, make func(t *testing.T, o *issuer) string) callerKind {
	return callerKind{name: "JWT " + name, bad: true, authorization: func(t *testing.T, o *issuer, _ string) string { return "Bearer " + make(t, o) }}
}

// allRights are all rights for all sets.
const allRights = "publish:*,follow:*,operate"

// badClaim returns a badJWT with a valid signature.
func badClaim(name string, changes map[string]any) callerKind {
	return badJWT(name, func(t *testing.T, o *issuer) string { return o.jwt(t, jose.ES256, allRights, changes) })
}

// badHeader returns the kind of callers with another invalid header.
func badHeader(name string, header func(o *issuer) string) callerKind {
	return callerKind{name: name, bad: true, authorization: func(_ *testing.T, o *issuer, _ string) string { return header(o) }}
}

// validFor returns a function that issues tickets with a lifetime.
func validFor(d time.Duration) func(t *testing.T, m *matrix, holder access.Caller, set string) string {
	return func(t *testing.T, m *matrix, holder access.Caller, set string) string {
		return newTicket(t, m.server.callers.tickets, holder, set, d)
	}
}

func newTicket(t *testing.T, tickets *access.Tickets, holder access.Caller, set string, lasts time.Duration) string {
	t.Helper()
	text, _, err := tickets.New(t.Context(), holder, set, lasts)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// withTicket returns the kind of callers with a ticket. By default its holder has all rights.
func withTicket(name string, k callerKind) callerKind {
	k.name = "ticket " + name
	if k.authorization == nil {
		k.authorization = withToken("", follow, publish, operate).authorization
	}
	return k
}

// callerKinds returns all kinds of callers.
func callerKinds() []callerKind {
	past := time.Now().Add(-2 * time.Minute)
	return []callerKind{
		{name: "none", anonymous: true},
		withToken("follow", follow),
		withToken("publish", publish),
		withToken("operate", operate),
		withToken("everything", follow, publish, operate),
		{name: "token for another set", authorization: func(_ *testing.T, o *issuer, sets string) string {
			return "Bearer " + o.token("follow:other-*,publish:other-*,follow:"+strings.TrimSuffix(sets, "-"))
		}},
		withJWT(jose.RS256, follow, publish),
		withJWT(jose.PS256, follow),
		withJWT(jose.ES256, follow, publish, operate),
		withJWT(jose.ES384, publish),
		withJWT(jose.ES512, follow),
		withJWT(jose.EdDSA, follow, publish),
		withJWT(jose.HS256, operate),
		{name: "JWT for another set", authorization: func(t *testing.T, o *issuer, _ string) string {
			return "Bearer " + o.jwt(t, jose.EdDSA, rightsOf("other-", follow, publish), nil)
		}},
		{name: "JWT without rights", authorization: func(t *testing.T, o *issuer, _ string) string {
			return "Bearer " + o.jwt(t, jose.RS256, "openid profile", nil)
		}},

		badHeader("unknown token", func(*issuer) string { token, _ := access.NewToken(); return "Bearer " + token }),
		badHeader("expired token", func(o *issuer) string {
			return "Bearer " + o.token(allRights, "expires="+past.UTC().Format(time.RFC3339))
		}),
		badHeader("digest", func(o *issuer) string { return "Bearer " + access.Digest(o.token(allRights)) }),
		badHeader("token in capitals", func(o *issuer) string { return "Bearer " + strings.ToUpper(o.token(allRights)) }),
		badHeader("token without scheme", func(o *issuer) string { return o.token(allRights) }),
		badHeader("Basic", func(o *issuer) string {
			return "Basic " + base64.StdEncoding.EncodeToString([]byte("x:"+o.token(allRights)))
		}),
		badHeader("two tokens", func(o *issuer) string { return "Bearer " + o.token(allRights) + ", Bearer " + o.token(allRights) }),
		badHeader("Bearer alone", func(*issuer) string { return "Bearer" }),
		badClaim("expired", map[string]any{"exp": past.Unix()}),
		badClaim("without an end", map[string]any{"exp": nil}),
		badClaim("not good yet", map[string]any{"nbf": time.Now().Add(time.Hour).Unix()}),
		badClaim("of another issuer", map[string]any{"iss": "https://evil.example/"}),
		badClaim("for another service", map[string]any{"aud": "https://evil.example"}),
		badClaim("without a subject", map[string]any{"sub": ""}),
		badJWT("forged", func(t *testing.T, o *issuer) string { return signJWT(t, jose.ES256, o.foreign, allRights, nil) }),
		badJWT("without a signature", func(t *testing.T, o *issuer) string {
			parts := strings.Split(o.jwt(t, jose.ES256, allRights, nil), ".")
			return base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + "." + parts[1] + "."
		}),
		badJWT("of another's rights", func(t *testing.T, o *issuer) string {
			ours, theirs := strings.Split(o.jwt(t, jose.ES256, "", nil), "."), strings.Split(o.jwt(t, jose.ES256, allRights, nil), ".")
			return ours[0] + "." + theirs[1] + "." + ours[2]
		}),

		withTicket("for this set", callerKind{has: []right{follow}, ticket: validFor(time.Hour)}),
		withTicket("in a cookie", callerKind{has: []right{follow}, ticket: validFor(time.Hour), cookie: true}),
		withTicket("of a JWT", callerKind{has: []right{follow}, ticket: validFor(time.Hour), authorization: withJWT(jose.EdDSA, follow).authorization}),
		withTicket("for another set", callerKind{ticket: func(t *testing.T, m *matrix, holder access.Caller, set string) string {
			return newTicket(t, m.server.callers.tickets, holder, set+"x", time.Hour)
		}}),
		withTicket("of a caller who may not follow", callerKind{ticket: validFor(time.Hour), authorization: withToken("", publish, operate).authorization}),
		withTicket("that has expired", callerKind{bad: true, ticket: validFor(0)}),
		withTicket("that has expired, in a cookie", callerKind{bad: true, ticket: validFor(0), cookie: true}),
		withTicket("with another key", callerKind{bad: true, ticket: func(t *testing.T, m *matrix, holder access.Caller, set string) string {
			return newTicket(t, access.NewTickets(m.server.callers.authenticator, ticket.NewLocalKeys()), holder, set, time.Hour)
		}}),
		withTicket("that was changed", callerKind{bad: true, ticket: func(t *testing.T, m *matrix, holder access.Caller, set string) string {
			sealed, err := base64.RawURLEncoding.DecodeString(validFor(time.Hour)(t, m, holder, set))
			if err != nil {
				t.Fatal(err)
			}
			sealed[len(sealed)-20] ^= 1
			return base64.RawURLEncoding.EncodeToString(sealed)
		}}),
		withTicket("that is a token", callerKind{bad: true, ticket: func(_ *testing.T, m *matrix, _ access.Caller, _ string) string {
			return strings.TrimPrefix(m.owner, "Bearer ")
		}}),
	}
}
