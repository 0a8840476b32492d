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

// A kind is a kind of caller. Each caller has sets of its own, whose names begin with the
// same letters.
type kind struct {
	name          string
	has           []right                                           // for its sets
	bad           bool                                              // its credentials are no good
	nameless      bool                                              // it has no credentials
	authorization func(t *testing.T, o *office, sets string) string // the header, for sets that begin so; nil: there is none

	// ticket makes the ticket that the caller sends in place of the header, which is that of
	// its holder; nil: it sends none. It is for one set.
	ticket func(t *testing.T, m *matrix, holder access.Caller, set string) string
	cookie bool // it is in a cookie
}

// by returns the kind as which the caller counts in a request. A ticket is for reading, and
// one in a cookie that is no good counts as none.
func (k *kind) by(method string) kind {
	if k.ticket != nil && (method != http.MethodGet && method != http.MethodHead || k.bad && k.cookie) {
		return kind{name: k.name, nameless: true}
	}
	return *k
}

// An office gives credentials to callers.
type office struct {
	file    strings.Builder // tokens
	tokens  int
	keys    map[jose.SignatureAlgorithm]any
	foreign *ecdsa.PrivateKey // no key of the issuer
	dir     string            // of the files
}

const (
	matrixIssuer   = "https://issuer.example.org/"
	matrixAudience = "https://hub.example.org"
)

// ofRSA is a key for all offices, because it takes long to make one.
var ofRSA = sync.OnceValues(func() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, 2048) })

func newOffice(t *testing.T) *office {
	t.Helper()
	rsaKey, err := ofRSA()
	if err != nil {
		t.Fatal(err)
	}
	o := &office{dir: t.TempDir(), keys: map[jose.SignatureAlgorithm]any{jose.RS256: rsaKey, jose.PS256: rsaKey, jose.HS256: []byte("a secret of thirty-two bytes or more")}}
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

// token makes a token with rights.
func (o *office) token(rights string, more ...string) string {
	token, digest := access.NewToken()
	o.tokens++
	fmt.Fprintf(&o.file, "caller%d %s %s %s\n", o.tokens, digest, rights, strings.Join(more, " "))
	return token
}

// jwt makes a JWT with rights. Changes replace claims; nil removes one.
func (o *office) jwt(t *testing.T, algorithm jose.SignatureAlgorithm, rights string, changes map[string]any) string {
	t.Helper()
	return signed(t, algorithm, o.keys[algorithm], rights, changes)
}

func signed(t *testing.T, algorithm jose.SignatureAlgorithm, key any, rights string, changes map[string]any) string {
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

// writeKeys writes the keys of the issuer.
func (o *office) writeKeys(t *testing.T) {
	t.Helper()
	var set jose.JSONWebKeySet
	for algorithm, key := range o.keys {
		if signer, ok := key.(interface{ Public() any }); ok {
			key = signer.Public()
		}
		k := jose.JSONWebKey{KeyID: string(algorithm), Key: key}
		if public := k.Public(); public.Key != nil {
			k = public // a secret has none
		}
		set.Keys = append(set.Keys, k)
	}
	keys, err := json.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(o.dir, "keys"), string(keys))
}

// open returns what knows the callers, and what anyone may do.
func (o *office) open(t *testing.T, anyone string) access.Authenticator {
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
	a, err := jwt.New(known, jwt.Options{Issuer: matrixIssuer, Audience: []string{matrixAudience}, Others: tokens.open(t)})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// rightsOf returns the text of rights for all sets that begin so.
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

// withToken is the kind of callers whose token has rights.
func withToken(name string, has ...right) kind {
	return kind{name: name, has: has, authorization: func(_ *testing.T, o *office, sets string) string { return "Bearer " + o.token(rightsOf(sets, has...)) }}
}

// withJWT is the kind of callers whose JWT has rights.
func withJWT(algorithm jose.SignatureAlgorithm, has ...right) kind {
	return kind{name: fmt.Sprintf("JWT %s%v", algorithm, has), has: has, authorization: func(t *testing.T, o *office, sets string) string {
		return "Bearer " + o.jwt(t, algorithm, rightsOf(sets, has...), nil)
	}}
}

// badJWT is the kind of callers whose JWT would have all rights, if it were good.
func badJWT(name string, make func(t *testing.T, o *office) string) kind {
	return kind{name: "JWT " + name, bad: true, authorization: func(t *testing.T, o *office, _ string) string { return "Bearer " + make(t, o) }}
}

// all are the rights to everything.
const allRights = "publish:*,follow:*,operate"

// badClaim is a badJWT whose signature is good.
func badClaim(name string, changes map[string]any) kind {
	return badJWT(name, func(t *testing.T, o *office) string { return o.jwt(t, jose.ES256, allRights, changes) })
}

// bad is the kind of callers with another header that is no good.
func bad(name string, header func(o *office) string) kind {
	return kind{name: name, bad: true, authorization: func(_ *testing.T, o *office, _ string) string { return header(o) }}
}

// lasting makes tickets that expire after a time.
func lasting(d time.Duration) func(t *testing.T, m *matrix, holder access.Caller, set string) string {
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

// withTicket is the kind of callers with a ticket. Its holder has other rights as well.
func withTicket(name string, k kind) kind {
	k.name = "ticket " + name
	if k.authorization == nil {
		k.authorization = withToken("", follow, publish, operate).authorization
	}
	return k
}

// kinds are the kinds of callers.
func kinds() []kind {
	past := time.Now().Add(-2 * time.Minute)
	return []kind{
		{name: "none", nameless: true},
		withToken("follow", follow),
		withToken("publish", publish),
		withToken("operate", operate),
		withToken("everything", follow, publish, operate),
		{name: "token for another set", authorization: func(_ *testing.T, o *office, sets string) string {
			return "Bearer " + o.token("follow:other-*,publish:other-*,follow:"+strings.TrimSuffix(sets, "-"))
		}},
		withJWT(jose.RS256, follow, publish),
		withJWT(jose.PS256, follow),
		withJWT(jose.ES256, follow, publish, operate),
		withJWT(jose.ES384, publish),
		withJWT(jose.ES512, follow),
		withJWT(jose.EdDSA, follow, publish),
		withJWT(jose.HS256, operate),
		{name: "JWT for another set", authorization: func(t *testing.T, o *office, _ string) string {
			return "Bearer " + o.jwt(t, jose.EdDSA, rightsOf("other-", follow, publish), nil)
		}},
		{name: "JWT without rights", authorization: func(t *testing.T, o *office, _ string) string {
			return "Bearer " + o.jwt(t, jose.RS256, "openid profile", nil)
		}},

		bad("unknown token", func(*office) string { token, _ := access.NewToken(); return "Bearer " + token }),
		bad("expired token", func(o *office) string {
			return "Bearer " + o.token(allRights, "expires="+past.UTC().Format(time.RFC3339))
		}),
		bad("digest", func(o *office) string { return "Bearer " + access.Digest(o.token(allRights)) }),
		bad("token in capitals", func(o *office) string { return "Bearer " + strings.ToUpper(o.token(allRights)) }),
		bad("token without scheme", func(o *office) string { return o.token(allRights) }),
		bad("Basic", func(o *office) string {
			return "Basic " + base64.StdEncoding.EncodeToString([]byte("x:"+o.token(allRights)))
		}),
		bad("two tokens", func(o *office) string { return "Bearer " + o.token(allRights) + ", Bearer " + o.token(allRights) }),
		bad("Bearer alone", func(*office) string { return "Bearer" }),
		badClaim("expired", map[string]any{"exp": past.Unix()}),
		badClaim("without an end", map[string]any{"exp": nil}),
		badClaim("not good yet", map[string]any{"nbf": time.Now().Add(time.Hour).Unix()}),
		badClaim("of another issuer", map[string]any{"iss": "https://evil.example/"}),
		badClaim("for another service", map[string]any{"aud": "https://evil.example"}),
		badClaim("of nobody", map[string]any{"sub": ""}),
		badJWT("forged", func(t *testing.T, o *office) string { return signed(t, jose.ES256, o.foreign, allRights, nil) }),
		badJWT("without a signature", func(t *testing.T, o *office) string {
			parts := strings.Split(o.jwt(t, jose.ES256, allRights, nil), ".")
			return base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + "." + parts[1] + "."
		}),
		badJWT("of another's rights", func(t *testing.T, o *office) string {
			ours, theirs := strings.Split(o.jwt(t, jose.ES256, "", nil), "."), strings.Split(o.jwt(t, jose.ES256, allRights, nil), ".")
			return ours[0] + "." + theirs[1] + "." + ours[2]
		}),

		withTicket("for this set", kind{has: []right{follow}, ticket: lasting(time.Hour)}),
		withTicket("in a cookie", kind{has: []right{follow}, ticket: lasting(time.Hour), cookie: true}),
		withTicket("of a JWT", kind{has: []right{follow}, ticket: lasting(time.Hour), authorization: withJWT(jose.EdDSA, follow).authorization}),
		withTicket("for another set", kind{ticket: func(t *testing.T, m *matrix, holder access.Caller, set string) string {
			return newTicket(t, m.server.callers.tickets, holder, set+"x", time.Hour)
		}}),
		withTicket("of somebody who may not follow", kind{ticket: lasting(time.Hour), authorization: withToken("", publish, operate).authorization}),
		withTicket("that has expired", kind{bad: true, ticket: lasting(0)}),
		withTicket("that has expired, in a cookie", kind{bad: true, ticket: lasting(0), cookie: true}),
		withTicket("with another key", kind{bad: true, ticket: func(t *testing.T, m *matrix, holder access.Caller, set string) string {
			return newTicket(t, access.NewTickets(m.server.callers.authenticator, ticket.NewOwnKeys()), holder, set, time.Hour)
		}}),
		withTicket("that was changed", kind{bad: true, ticket: func(t *testing.T, m *matrix, holder access.Caller, set string) string {
			sealed, err := base64.RawURLEncoding.DecodeString(lasting(time.Hour)(t, m, holder, set))
			if err != nil {
				t.Fatal(err)
			}
			sealed[len(sealed)-20] ^= 1
			return base64.RawURLEncoding.EncodeToString(sealed)
		}}),
		withTicket("that is a token", kind{bad: true, ticket: func(_ *testing.T, m *matrix, _ access.Caller, _ string) string {
			return strings.TrimPrefix(m.owner, "Bearer ")
		}}),
	}
}
