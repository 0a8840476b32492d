package jwt

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/access"
)

const (
	issuer   = "https://issuer.example.org/"
	audience = "https://hub.example.org"
)

// A pair is a key pair of the issuer, or a secret.
type pair struct {
	id        string
	algorithm jose.SignatureAlgorithm
	private   any
	public    any
}

var pairs = sync.OnceValue(func() map[string]*pair {
	rsaKey, _ := rsa.GenerateKey(rand.Reader, 2048)
	ecKey, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ec384, _ := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	public, edKey, _ := ed25519.GenerateKey(rand.Reader)
	secret := []byte("a secret of thirty-two bytes or more")
	return map[string]*pair{
		"rsa":   {"rsa", jose.RS256, rsaKey, &rsaKey.PublicKey},
		"pss":   {"rsa", jose.PS384, rsaKey, &rsaKey.PublicKey},
		"ec":    {"ec", jose.ES256, ecKey, &ecKey.PublicKey},
		"ec384": {"ec384", jose.ES384, ec384, &ec384.PublicKey},
		"eddsa": {"eddsa", jose.EdDSA, edKey, public},
		"hmac":  {"hmac", jose.HS256, secret, secret},
	}
})

func set(t *testing.T, names ...string) []byte {
	t.Helper()
	var set jose.JSONWebKeySet
	for _, name := range names {
		set.Keys = append(set.Keys, jose.JSONWebKey{KeyID: pairs()[name].id, Key: pairs()[name].public})
	}
	text, err := json.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func file(t *testing.T, text []byte) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func open(t *testing.T, from string) *Authenticator {
	t.Helper()
	keys, err := OpenKeys(from, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	a, err := New(keys, Options{Issuer: issuer, Audience: []string{audience}})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// claims returns valid claims with some of them replaced; nil removes one.
func claims(changes map[string]any) map[string]any {
	c := map[string]any{
		"iss": issuer, "aud": audience, "sub": "alice", "scope": "openid publish:demo follow:*",
		"exp": time.Now().Add(time.Hour).Unix(), "iat": time.Now().Unix(),
	}
	maps.Copy(c, changes)
	maps.DeleteFunc(c, func(_ string, v any) bool { return v == nil })
	return c
}

func sign(t *testing.T, p *pair, c map[string]any) string {
	t.Helper()
	return signWith(t, jose.SigningKey{Algorithm: p.algorithm, Key: jose.JSONWebKey{KeyID: p.id, Key: p.private}}, nil, c)
}

func signWith(t *testing.T, key jose.SigningKey, o *jose.SignerOptions, c map[string]any) string {
	t.Helper()
	signer, err := jose.NewSigner(key, o)
	if err != nil {
		t.Fatal(err)
	}
	payload, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		t.Fatal(err)
	}
	token, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func caller(a access.Authenticator, token string) (access.Caller, error) {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Authorization", "Bearer "+token)
	return a.Caller(r)
}

func TestKeyTypes(t *testing.T) {
	a := open(t, file(t, set(t, "rsa", "ec", "ec384", "eddsa", "hmac")))
	for name, p := range pairs() {
		token := sign(t, p, claims(nil))
		for range 2 { // the second time from the cache
			c, err := caller(a, token)
			if err != nil || c.Name != "jwt:alice" || !c.Rights.Publish("demo") || c.Rights.Publish("other") || !c.Rights.Follow("x") || c.Rights.Operate() || c.Expires.IsZero() {
				t.Errorf("%s: Caller() = %+v, %v, want alice with her rights", name, c, err)
			}
		}
		broken := token[:len(token)-6] + "AAAAAA"
		if c, err := caller(a, broken); err == nil || c.Rights.Follow("x") {
			t.Errorf("%s: Caller() with a wrong signature = %+v, want an error", name, c)
		}
	}
}

func TestPEM(t *testing.T) {
	var text []byte
	for _, name := range []string{"rsa", "eddsa"} {
		der, err := x509.MarshalPKIXPublicKey(pairs()[name].public)
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})...)
	}
	a := open(t, file(t, text))
	for _, name := range []string{"rsa", "eddsa", "pss"} {
		if _, err := caller(a, sign(t, pairs()[name], claims(nil))); err != nil {
			t.Errorf("%s: Caller() = %v, want nil", name, err)
		}
	}
	if _, err := caller(a, sign(t, pairs()["ec"], claims(nil))); err == nil {
		t.Error("Caller() with an unknown key = nil, want an error")
	}
}

// ecKeys returns n key pairs of the issuer for ES256, with or without IDs.
func ecKeys(t *testing.T, n int, ids bool) (all []*pair) {
	t.Helper()
	for i := range n {
		private := anotherKey(t)
		p := &pair{"", jose.ES256, private, &private.PublicKey}
		if ids {
			p.id = fmt.Sprint("k", i+1)
		}
		all = append(all, p)
	}
	return all
}

func pemText(t *testing.T, keys []*pair) (text []byte) {
	t.Helper()
	for _, p := range keys {
		der, err := x509.MarshalPKIXPublicKey(p.public)
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})...)
	}
	return text
}

func jwkText(t *testing.T, keys []*pair) []byte {
	t.Helper()
	var set jose.JSONWebKeySet
	for _, p := range keys {
		set.Keys = append(set.Keys, jose.JSONWebKey{KeyID: p.id, Key: p.public})
	}
	text, err := json.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestManyKeys(t *testing.T) {
	for _, tt := range []struct {
		name  string
		keys  int
		ids   bool // whether the keys of a JWK Set have IDs
		form  func(*testing.T, []*pair) []byte
		kid   bool // whether each token names a key
		wrong string
	}{
		{"PEM", 16, false, pemText, false, ""},
		{"PEM and kid", 16, false, pemText, true, ""},
		{"set", 16, true, jwkText, false, ""},
		{"set and kid", 16, true, jwkText, true, ""},
		{"set without IDs", 16, false, jwkText, false, ""},
		{"set without IDs and kid", 16, false, jwkText, true, ""},
		{"large set and kid", 100, true, jwkText, true, ""},
		{"large set", 17, true, jwkText, false, "names no key (kid)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			keys := ecKeys(t, tt.keys, tt.ids)
			a := open(t, file(t, tt.form(t, keys)))
			for i, p := range keys {
				signer := *p
				signer.id = ""
				if tt.kid {
					signer.id = fmt.Sprint("k", i+1)
				}
				_, err := caller(a, sign(t, &signer, claims(nil)))
				if tt.wrong == "" && err != nil || tt.wrong != "" && (err == nil || !strings.Contains(err.Error(), tt.wrong)) {
					t.Errorf("key %d: Caller() = %v, want %q", i+1, err, tt.wrong)
				}
			}
		})
	}
}

// A document of keys is refused if a token would have to be checked with too many of them.
func TestIndistinguishableKeys(t *testing.T) {
	same := ecKeys(t, 17, true)
	for _, p := range same {
		p.id = "k"
	}
	for name, text := range map[string][]byte{
		"PEM":             pemText(t, ecKeys(t, 17, false)),
		"set without IDs": jwkText(t, ecKeys(t, 17, false)),
		"one ID":          jwkText(t, same),
		"some IDs":        jwkText(t, append(ecKeys(t, 16, false), ecKeys(t, 1, true)...)),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := OpenKeys(file(t, text), slog.New(slog.DiscardHandler))
			if want := "got 17 keys for ES256"; err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("OpenKeys() = %v, want %q", err, want)
			}
		})
	}
}

func TestClaims(t *testing.T) {
	a := open(t, file(t, set(t, "ec")))
	now := time.Now()
	for _, test := range []struct {
		name    string
		changes map[string]any
		err     string // part of the error; empty if the token is valid
	}{
		{"valid", nil, ""},
		{"several audiences", map[string]any{"aud": []string{"x", audience}}, ""},
		{"no rights", map[string]any{"scope": nil}, ""},
		{"other scopes", map[string]any{"scope": "openid email"}, ""},
		{"a list of rights", map[string]any{"scope": []string{"publish:demo", "operate"}}, ""},
		{"starts slightly in the future", map[string]any{"iat": now.Add(30 * time.Second).Unix(), "nbf": now.Add(30 * time.Second).Unix()}, ""},
		{"another issuer", map[string]any{"iss": "https://evil.example"}, "iss"},
		{"no issuer", map[string]any{"iss": nil}, "iss"},
		{"another audience", map[string]any{"aud": "https://other.example.org"}, "aud"},
		{"no audience", map[string]any{"aud": nil}, "aud"},
		{"expired", map[string]any{"exp": now.Add(-time.Second).Unix()}, "expired"},
		{"no expiry", map[string]any{"exp": nil}, "exp"},
		{"expiry not a number", map[string]any{"exp": "never"}, "unreadable"},
		{"starts in the future", map[string]any{"nbf": now.Add(time.Hour).Unix()}, "nbf"},
		{"issued tomorrow", map[string]any{"iat": now.Add(24 * time.Hour).Unix()}, "iat"},
		{"no subject", map[string]any{"sub": nil}, "sub"},
		{"line break in the name", map[string]any{"sub": "a\nb"}, "sub"},
		{"a long name", map[string]any{"sub": strings.Repeat("a", 201)}, "sub"},
		{"invalid right", map[string]any{"scope": "publish:NOT/A/SET!"}, "scope"},
		{"rights as a number", map[string]any{"scope": 7}, "scope"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, err := caller(a, sign(t, pairs()["ec"], claims(test.changes)))
			if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("Caller() = %v, want %q", err, test.err)
			}
			if p, ok := errors.AsType[*feed.Problem](err); err != nil && (!ok || p.Status != http.StatusUnauthorized || c.Rights.Follow("x")) {
				t.Errorf("Caller() = %+v, %v, want 401 and no rights", c, p)
			}
		})
	}
}

func TestRightsClaim(t *testing.T) {
	a := open(t, file(t, set(t, "ec")))
	for _, tt := range []struct {
		name       string
		scope, scp any // nil if absent
		publish    bool
		follow     bool
		err        string // part of the error; empty if the token is valid
	}{
		{"scope string", "openid publish:demo", nil, true, false, ""},
		{"scope array", []string{"openid", "publish:demo"}, nil, true, false, ""},
		{"scp string", nil, "openid publish:demo follow:*", true, true, ""},
		{"scp array", nil, []string{"openid", "publish:demo", "follow:*"}, true, true, ""},
		{"scp array of one string", nil, []string{"publish:demo follow:*"}, true, true, ""},
		{"scp null", nil, json.RawMessage("null"), false, false, ""},
		{"scp empty array", nil, []string{}, false, false, ""},
		{"scope null", json.RawMessage("null"), "publish:demo", true, false, ""},
		{"both", "follow:*", "publish:demo", false, true, ""},
		{"both, arrays", []string{"follow:*"}, []string{"publish:demo"}, false, true, ""},
		{"scope empty", "", "publish:demo", false, false, ""},
		{"scope empty array", []string{}, "publish:demo", false, false, ""},
		{"scope valid, scp not", "publish:demo", 7, true, false, ""},
		{"scope invalid", 7, "publish:demo", false, false, "claim scope: neither"},
		{"scp number", nil, 7, false, false, "claim scp: neither"},
		{"scp object", nil, map[string]any{"publish:demo": true}, false, false, "claim scp: neither"},
		{"scp array of numbers", nil, []any{"publish:demo", 7}, false, false, "claim scp: neither"},
		{"scp with an invalid right", nil, "publish:NOT/A/SET!", false, false, "claim scp: invalid right"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := caller(a, sign(t, pairs()["ec"], claims(map[string]any{"scope": tt.scope, "scp": tt.scp})))
			if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Fatalf("Caller() = %v, want %q", err, tt.err)
			}
			if got := c.Rights.Publish("demo"); got != tt.publish {
				t.Errorf("Publish(demo) = %t, want %t", got, tt.publish)
			}
			if got := c.Rights.Follow("demo"); got != tt.follow {
				t.Errorf("Follow(demo) = %t, want %t", got, tt.follow)
			}
		})
	}
}

func TestForbidden(t *testing.T) {
	a := open(t, file(t, set(t, "ec")))
	const lacks = "your token does not have the right "
	long := strings.Repeat("openid ", 1000)
	for _, tt := range []struct {
		name       string
		scope, scp any // nil if absent
		want       string
	}{
		{"scope", "openid profile", nil, `its claim "scope" holds "openid profile"`},
		{"scope array", []string{"openid", "profile"}, nil, `its claim "scope" holds "openid profile"`},
		{"scope empty", "", nil, `its claim "scope" holds ""`},
		{"scope and scp", "openid", "publish:demo", `its claim "scope" holds "openid"`},
		{"scp", nil, "openid publish:other", `its claim "scp" holds "openid publish:other"`},
		{"scp array", nil, []string{"openid", "publish:other"}, `its claim "scp" holds "openid publish:other"`},
		{"neither", nil, nil, `it has no claim "scope" or "scp"`},
		{"long", long, nil, `its claim "scope" holds "` + long[:200] + `"...`},
		{"long and not ASCII", strings.Repeat("é", 5000), nil, `its claim "scope" holds "` + strings.Repeat(`\u00e9`, 100) + `"...`},
		{"cut within a rune", "a" + strings.Repeat("é", 5000), nil, `its claim "scope" holds "a` + strings.Repeat(`\u00e9`, 99) + `"...`},
		{"control characters", "a\x1b[31m\r\nb\"\u202e", nil, `its claim "scope" holds "a\x1b[31m\r\nb\"\u202e"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			token := sign(t, pairs()["ec"], claims(map[string]any{"scope": tt.scope, "scp": tt.scp, "email": "alice@example.org"}))
			for range 2 { // the second time from the cache
				c, err := caller(a, token)
				if err != nil {
					t.Fatalf("Caller() = %v", err)
				}
				ctx := access.NewContext(t.Context(), c)
				for want, err := range map[string]error{
					lacks + "publish:demo: " + tt.want + "; want publish:demo or publish:*": access.MayPublish(ctx, "demo"),
					lacks + "follow:demo: " + tt.want + "; want follow:demo or follow:*":    access.MayFollow(ctx, "demo"),
					lacks + "operate: " + tt.want + "; want operate":                        access.MayOperate(ctx),
				} {
					if p, ok := errors.AsType[*feed.Problem](err); !ok || p.Status != http.StatusForbidden || p.Detail != want {
						t.Errorf("got %v, want 403 with %q", err, want)
					}
				}
			}
		})
	}
}

// tokenOfSize returns a valid token of n bytes, for any n that is possible in base64.
func tokenOfSize(t *testing.T, n int) string {
	t.Helper()
	secret := pairs()["hmac"].private.([]byte)
	payload := func(pad int) string {
		text, err := json.Marshal(claims(map[string]any{"roles": strings.Repeat("a", pad)}))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for header := `{"alg":"HS256","kid":"hmac"`; ; header += " " {
		token := signHMAC(header+"}", payload(0), secret)
		for pad := max(0, (n-len(token))*3/4-4); ; pad++ {
			if token = signHMAC(header+"}", payload(pad), secret); len(token) == n {
				return token
			} else if len(token) > n {
				break
			}
		}
	}
}

func TestTokenSize(t *testing.T) {
	a := open(t, file(t, set(t, "hmac")))
	for _, tt := range []struct {
		size int
		err  string // part of the error; empty if the token is valid
	}{
		{1 << 10, ""},
		{8<<10 + 1, ""},
		{16 << 10, ""},
		{16<<10 + 1, "the JWT is longer than 16384 bytes"},
	} {
		t.Run(fmt.Sprint(tt.size), func(t *testing.T) {
			c, err := caller(a, tokenOfSize(t, tt.size))
			if tt.err == "" && (err != nil || !c.Rights.Publish("demo")) || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("Caller() = %+v, %v, want %q", c, err, tt.err)
			}
		})
	}
}

// Attacks by the header of a token fail.
func TestForgedTokens(t *testing.T) {
	a := open(t, file(t, set(t, "rsa", "ec", "hmac")))
	encode := func(v any) string {
		text, _ := json.Marshal(v)
		return base64.RawURLEncoding.EncodeToString(text)
	}
	body := encode(claims(nil))
	rsaPublic, _ := x509.MarshalPKIXPublicKey(pairs()["rsa"].public)
	asText := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: rsaPublic})
	good := strings.Split(sign(t, pairs()["ec"], claims(nil)), ".")
	mine, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	for name, token := range map[string]string{
		"none":                encode(map[string]any{"alg": "none"}) + "." + body + ".",
		"None":                encode(map[string]any{"alg": "None"}) + "." + body + ".",
		"none with signature": encode(map[string]any{"alg": "none", "kid": "ec"}) + "." + body + "." + good[2],
		"no signature":        good[0] + "." + good[1] + ".",
		"another body":        good[0] + "." + encode(claims(map[string]any{"scope": "operate"})) + "." + good[2],
		"another header":      encode(map[string]any{"alg": "ES256", "kid": "ec", "typ": "x"}) + "." + good[1] + "." + good[2],
		"a public key as a secret": signWith(t, jose.SigningKey{Algorithm: jose.HS256, Key: asText},
			(&jose.SignerOptions{}).WithHeader("kid", "rsa"), claims(nil)),
		"the key's bytes as a secret": signWith(t, jose.SigningKey{Algorithm: jose.HS256, Key: rsaPublic},
			(&jose.SignerOptions{}).WithHeader("kid", "rsa"), claims(nil)),
		"its own key":              signWith(t, jose.SigningKey{Algorithm: jose.ES256, Key: mine}, &jose.SignerOptions{EmbedJWK: true}, claims(nil)),
		"its own key under a name": signWith(t, jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: mine, KeyID: "ec"}}, nil, claims(nil)),
		"a key elsewhere": signWith(t, jose.SigningKey{Algorithm: jose.ES256, Key: mine},
			(&jose.SignerOptions{}).WithHeader("jku", "https://evil.example/keys").WithHeader("kid", "ec"), claims(nil)),
		"a path for a key": signWith(t, jose.SigningKey{Algorithm: jose.HS256, Key: make([]byte, 32)},
			(&jose.SignerOptions{}).WithHeader("kid", "../../../../dev/null"), claims(nil)),
		"an extension that must be understood": signWith(t, jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: pairs()["ec"].private, KeyID: "ec"}},
			(&jose.SignerOptions{}).WithHeader("crit", []string{"x"}).WithHeader("x", 1), claims(nil)),
		"encrypted":            "eyJhbGciOiJkaXIiLCJlbmMiOiJBMTI4R0NNIn0..AAAA.AAAA.AAAA",
		"JSON":                 `{"payload":"x","signatures":[]}`,
		"dots":                 "..",
		"a number for a key":   encode(map[string]any{"alg": "ES256", "kid": 7}) + "." + good[1] + "." + good[2],
		"an empty secret":      signWith(t, jose.SigningKey{Algorithm: jose.HS256, Key: make([]byte, 32)}, nil, claims(nil)),
		"a token that is long": good[0] + "." + strings.Repeat("A", 17000) + "." + good[2],
	} {
		c, err := caller(a, token)
		if p, ok := errors.AsType[*feed.Problem](err); !ok || p.Status != http.StatusUnauthorized || c.Name != "" || c.Rights.Follow("x") || c.Rights.Operate() {
			t.Errorf("%s: Caller() = %+v, %v, want 401", name, c, err)
		}
		if err != nil && len(good[2]) > 0 && strings.Contains(err.Error(), good[2]) {
			t.Errorf("%s: got an error with the token: %v", name, err)
		}
	}
}

func TestOpenKeysInvalid(t *testing.T) {
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	jwk := func(k jose.JSONWebKey) string {
		text, _ := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{k}})
		return string(text)
	}
	for name, text := range map[string]string{
		"nothing":         "",
		"no set":          `{"kty":"RSA"}`,
		"an empty set":    `{"keys":[]}`,
		"no key":          `{"keys":[7]}`,
		"a weak key":      jwk(jose.JSONWebKey{Key: &weak.PublicKey}),
		"a short secret":  jwk(jose.JSONWebKey{Key: []byte("short")}),
		"a private key":   jwk(jose.JSONWebKey{Key: pairs()["ec"].private}),
		"for encryption":  jwk(jose.JSONWebKey{Key: pairs()["ec"].public, Use: "enc"}),
		"wrong algorithm": jwk(jose.JSONWebKey{Key: pairs()["rsa"].public, Algorithm: "HS256"}),
		"too many":        `{"keys":[` + strings.Repeat("{},", 100) + `{}]}`,
		"a certificate":   "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
	} {
		if _, err := OpenKeys(file(t, []byte(text)), slog.New(slog.DiscardHandler)); err == nil {
			t.Errorf("OpenKeys() of %s = nil, want an error", name)
		}
	}
	for _, from := range []string{"http://keys.example.org/", "https://user:password@keys.example.org/", "https://", filepath.Join(t.TempDir(), "none")} {
		if _, err := OpenKeys(from, slog.New(slog.DiscardHandler)); err == nil {
			t.Errorf("OpenKeys(%q) = nil, want an error", from)
		}
	}
}

// An issuer replaces its keys, fails temporarily, and has keys for other purposes.
func TestKeysAtURL(t *testing.T) {
	var mu sync.Mutex
	var text []byte
	status := http.StatusOK
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if status == http.StatusFound {
			w.Header().Set("Location", "http://example.org/")
		}
		w.WriteHeader(status)
		_, _ = w.Write(text)
	}))
	defer srv.Close()
	serve := func(code int, body []byte) {
		mu.Lock()
		defer mu.Unlock()
		status, text = code, body
	}
	a := open(t, srv.URL+"/keys")
	token := sign(t, pairs()["ec"], claims(nil))
	_, err := caller(a, token)
	if p, ok := errors.AsType[*feed.Problem](err); !ok || p.Status != http.StatusServiceUnavailable || p.RetryAfter == 0 {
		t.Errorf("Caller() without keys = %v, want 503", err)
	}
	reload := func() error {
		_, err := a.keys.document.Load(t.Context())
		return err
	}
	serve(http.StatusOK, set(t, "ec", "hmac"))
	if err := reload(); err != nil {
		t.Fatal(err)
	}
	if _, err := caller(a, token); err != nil {
		t.Error(err)
	}
	held, err := caller(a, token)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := caller(a, sign(t, pairs()["hmac"], claims(nil))); err == nil {
		t.Error("Caller() with a secret from a URL = nil, want an error")
	}
	version := a.Version()
	for name, answer := range map[string]func(){
		"an error":   func() { serve(http.StatusInternalServerError, nil) },
		"a redirect": func() { serve(http.StatusFound, nil) },
		"a page":     func() { serve(http.StatusOK, []byte("<html>")) },
		"too long": func() {
			serve(http.StatusOK, fmt.Appendf(nil, `{"x":%q,"keys":[]}`, strings.Repeat("a", maxDocumentBytes)))
		},
		"no good keys": func() { serve(http.StatusOK, set(t, "hmac")) },
	} {
		answer()
		if reload() == nil || a.Err() == nil || a.Version() != version {
			t.Errorf("%s: got no error or another version, want an error and the same version", name)
		}
		if _, err := caller(a, token); err != nil {
			t.Errorf("%s: Caller() = %v, want the previous keys in force", name, err)
		}
	}
	if _, ok := a.CallerByName(held.Name, held.Key); !ok || held.Key == "" {
		t.Errorf("CallerByName() with the key %q: got false, want true", held.Key)
	}
	serve(http.StatusOK, set(t, "rsa"))
	if err := reload(); err != nil || a.Version() == version {
		t.Fatal(err)
	}
	if _, ok := a.CallerByName(held.Name, held.Key); ok {
		t.Error("CallerByName() with a withdrawn key: got true, want false")
	}
	if _, err := caller(a, token); err == nil {
		t.Error("Caller() with a withdrawn key = nil, want an error")
	}
	if _, err := held.Refresh(); err == nil {
		t.Error("Refresh() with a withdrawn key = nil, want an error")
	}
	if len(a.keys.fetchRequested) != 0 {
		t.Error("got a fetch request immediately after a fetch, want none")
	}
	a.keys.mu.Lock()
	a.keys.lastFetch = time.Now().Add(-requestedInterval)
	a.keys.mu.Unlock()
	for range 3 {
		_, _ = caller(a, token)
	}
	if len(a.keys.fetchRequested) != 1 {
		t.Error("got no fetch request for an unknown key, want one")
	}
	<-a.keys.fetchRequested

	// An issuer whose keys have no IDs replaces its key.
	public := jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &anotherKey(t).PublicKey}}}
	unnamed, err := json.Marshal(public)
	if err != nil {
		t.Fatal(err)
	}
	serve(http.StatusOK, unnamed)
	if err := reload(); err != nil {
		t.Fatal(err)
	}
	a.keys.mu.Lock()
	a.keys.lastFetch = time.Now().Add(-requestedInterval)
	a.keys.mu.Unlock()
	if _, err := caller(a, token); err == nil || len(a.keys.fetchRequested) != 1 {
		t.Errorf("Caller() with an unknown key without ID = %v, want an error and a fetch request", err)
	}
}

func anotherKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestFallback(t *testing.T) {
	const other = "rshub_ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	tokens, err := access.OpenTokensFile(file(t, []byte("bob "+access.Digest(other)+" publish:b\nanyone - follow:public\n")), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	a := open(t, file(t, set(t, "eddsa")))
	a.opts.Fallback = tokens
	if c, err := caller(a, other); err != nil || c.Name != "bob" || !c.Rights.Follow("public") {
		t.Errorf("Caller(bob) = %+v, %v, want bob with the rights of anyone", c, err)
	}
	if c, err := caller(a, sign(t, pairs()["eddsa"], claims(map[string]any{"scope": nil}))); err != nil || !c.Rights.Follow("public") || c.Rights.Follow("x") {
		t.Errorf("Caller() with a JWT = %+v, %v, want the rights of anyone", c, err)
	}
	if c, err := a.Caller(httptest.NewRequest(http.MethodGet, "/", nil)); err != nil || c.Name != "" || !c.Rights.Follow("public") {
		t.Errorf("Caller() without a token = %+v, %v, want the rights of anyone", c, err)
	}
	if _, err := access.ReadTokens(strings.NewReader("jwt:alice " + access.Digest(other) + " publish:b")); err == nil {
		t.Error("ReadTokens() with the name of a caller with a JWT = nil, want an error")
	}
}

// The cache of tokens is bounded.
func TestManyTokens(t *testing.T) {
	a := open(t, file(t, set(t, "hmac")))
	first := sign(t, pairs()["hmac"], claims(nil))
	for i := range 3 * maxCached {
		if _, err := caller(a, sign(t, pairs()["hmac"], claims(map[string]any{"jti": fmt.Sprint(i)}))); err != nil {
			t.Fatal(err)
		}
		if i%1000 == 0 {
			if _, err := caller(a, first); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := len(a.fresh) + len(a.old); n > 2*maxCached {
		t.Errorf("got %d cached tokens, want at most %d", n, 2*maxCached)
	}
}

// The cache is bounded by the size of rights.
func TestManyRights(t *testing.T) {
	a := open(t, file(t, set(t, "hmac")))
	scope := strings.TrimSpace(strings.Repeat("publish:demo ", 800))
	for i := range 2*maxRights/len(scope) + 100 {
		if _, err := caller(a, sign(t, pairs()["hmac"], claims(map[string]any{"scope": scope, "jti": fmt.Sprint(i)}))); err != nil {
			t.Fatal(err)
		}
	}
	for name, cache := range map[string]map[[sha256.Size]byte]verifiedToken{"fresh": a.fresh, "old": a.old} {
		total := 0
		for _, k := range cache {
			total += k.size
		}
		if total == 0 || total > maxRights {
			t.Errorf("cache %s: got %d bytes of rights, want at most %d", name, total, maxRights)
		}
	}
}

func FuzzCaller(f *testing.F) {
	t := &testing.T{}
	name := filepath.Join(f.TempDir(), "keys")
	if err := os.WriteFile(name, set(t, "ec", "hmac"), 0o600); err != nil {
		f.Fatal(err)
	}
	keys, err := OpenKeys(name, slog.New(slog.DiscardHandler))
	if err != nil {
		f.Fatal(err)
	}
	a, err := New(keys, Options{Issuer: issuer, Audience: []string{audience}})
	if err != nil {
		f.Fatal(err)
	}
	good := sign(t, pairs()["hmac"], claims(map[string]any{"exp": 1 << 40}))
	f.Add(good)
	f.Add("..")
	f.Add("e30.e30.AAAA")
	f.Fuzz(func(t *testing.T, token string) {
		c, err := a.caller(token)
		if err == nil && token != good || err != nil && c.Rights.Follow("x") {
			t.Errorf("caller(%q) = %+v, %v, want an error", token, c, err)
		}
		var rights access.Rights
		words, err := claimText(json.RawMessage(token))
		if err == nil {
			rights, _, err = parseRights(words)
		}
		if err == nil && rights.Operate() && !strings.Contains(token, "operate") && !strings.Contains(token, `\u`) {
			t.Errorf("parseRights(%q): got the right to operate", token)
		}
	})
}
