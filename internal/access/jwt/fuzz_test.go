package jwt

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/internal/access"
)

// newFuzzAuthenticator returns an Authenticator for keys of three types.
func newFuzzAuthenticator(f *testing.F) *Authenticator {
	f.Helper()
	name := filepath.Join(f.TempDir(), "keys")
	if err := os.WriteFile(name, set(&testing.T{}, "rsa", "ec", "hmac"), 0o600); err != nil {
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
	return a
}

// signHMAC returns a compact token with the given header and payload, signed with HMAC.
func signHMAC(header, payload string, secret []byte) string {
	text := base64.RawURLEncoding.EncodeToString([]byte(header)) + "." + base64.RawURLEncoding.EncodeToString([]byte(payload))
	h := hmac.New(sha256.New, secret)
	h.Write([]byte(text))
	return text + "." + base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}

// For any signed payload, a caller has only the rights in the claims, as a plain JSON parser reads
// them.
func FuzzClaims(f *testing.F) {
	for _, s := range []string{
		``, `{}`, `null`, `[]`, `{"iss":"` + issuer + `","aud":"` + audience + `","sub":"a","exp":99999999999,"scope":"publish:a follow:b* operate"}`,
		`{"iss":"` + issuer + `","aud":["x","` + audience + `"],"sub":"a","exp":1e300,"scope":["publish:a","openid"]}`,
		`{"iss":"` + issuer + `","aud":"` + audience + `","sub":"a","exp":1,"EXP":99999999999}`, `{"iss":"x","ISS":"` + issuer + `","aud":"` + audience + `","sub":"a","exp":99999999999}`,
		`{"iss":"` + issuer + `","aud":"` + audience + `","sub":"a","sub":"b","exp":99999999999}`, `{"iss":"` + issuer + `","aud":"` + audience + `","sub":"\u0000","exp":99999999999}`,
		`{"iss":"` + issuer + `","aud":"` + audience + `","sub":"a","exp":99999999999,"nbf":99999999998}`, `{"iss":"` + issuer + `","aud":"` + audience + `","sub":"a","exp":-1}`,
		`{"iss":"` + issuer + `","aud":"` + audience + `","sub":"a","exp":9223372036854775808,"scope":"publish:*"}`, `{"iss":"` + issuer + `","aud":{"x":1},"sub":"a","exp":"99999999999"}`,
		`{"iss":"` + issuer + `","aud":"` + audience + `","sub":"a","exp":99999999999,"scp":["publish:a","openid"]}`,
		`{"iss":"` + issuer + `","aud":"` + audience + `","sub":"a","exp":99999999999,"scope":"follow:b","scp":"publish:a"}`,
	} {
		f.Add(s)
	}
	a := newFuzzAuthenticator(f)
	f.Fuzz(func(t *testing.T, payload string) {
		c, err := a.caller(signHMAC(`{"alg":"HS256","kid":"hmac"}`, payload, pairs()["hmac"].private.([]byte)))
		if err != nil {
			if c.Name != "" || c.Rights.Follow("a") {
				t.Errorf("caller(%q) = %+v with an error, want no rights", payload, c)
			}
			return
		}
		var plain map[string]any
		if err := json.Unmarshal([]byte(payload), &plain); err != nil {
			t.Fatalf("caller(%q): got invalid JSON (%v) accepted as %+v", payload, err, c)
		}
		sub, _ := plain["sub"].(string)
		if plain["iss"] != issuer || sub == "" || len(sub) > maxName || c.Name != access.JWTPrefix+sub || strings.ContainsAny(sub, "\x00\r\n\x7f") {
			t.Errorf("caller(%q) = %+v, want the subject and issuer in the claims", payload, c)
		}
		audiences, _ := plain["aud"].([]any)
		if plain["aud"] != audience && !slices.Contains(audiences, any(audience)) {
			t.Errorf("caller(%q) = nil, want an error for another audience", payload)
		}
		now := float64(time.Now().Unix())
		if exp, ok := plain["exp"].(float64); !ok || exp < now-1 || !c.Expires.After(time.Now().Add(-time.Second)) || float64(c.Expires.Unix()) > exp+1 {
			t.Errorf("caller(%q): got the expiry %v, want that in the claims", payload, c.Expires)
		}
		for _, name := range []string{"nbf", "iat"} {
			if at, ok := plain[name].(float64); ok && at > now+a.opts.Skew.Seconds()+2 {
				t.Errorf("caller(%q) = nil, want an error before the start", payload)
			}
		}
		claim := plain["scope"]
		if claim == nil {
			claim = plain["scp"]
		}
		words, _ := claim.(string)
		if list, ok := claim.([]any); ok {
			for _, w := range list {
				text, _ := w.(string)
				words += " " + text
			}
		}
		all := strings.FieldsFunc(words, func(c rune) bool { return c == ' ' || c == ',' })
		for _, set := range []string{"a", "b", "bb", "demo"} {
			for right, has := range map[string]bool{"publish:": c.Rights.Publish(set), "follow:": c.Rights.Follow(set)} {
				if want := slices.ContainsFunc(all, func(w string) bool {
					pattern, ok := strings.CutPrefix(w, right)
					prefix, star := strings.CutSuffix(pattern, "*")
					return ok && (pattern == set || star && strings.HasPrefix(set, prefix))
				}); has != want {
					t.Errorf("caller(%q): right %s%s: got %t", payload, right, set, has)
				}
			}
		}
		if c.Rights.Operate() != slices.Contains(all, "operate") {
			t.Errorf("caller(%q): right operate: got %t", payload, c.Rights.Operate())
		}
	})
}

// For any header, a JWT is valid only if it is signed with the secret and the algorithm of the
// secret. A public key is never a secret.
func FuzzHeader(f *testing.F) {
	for _, s := range []string{
		`{"alg":"HS256"}`, `{"alg":"HS256","kid":"hmac"}`, `{"alg":"HS256","kid":"rsa"}`, `{"alg":"none"}`, `{"alg":"None"}`, `{"alg":"RS256","kid":"rsa"}`, `{"alg":"hs256"}`, `{"ALG":"HS256"}`,
		`{"alg":"HS256","alg":"none"}`, `{"alg":"HS256","crit":["exp"]}`, `{"alg":"HS256","crit":["b64"],"b64":false}`, `{"alg":"HS256","jku":"https://evil.example/"}`,
		`{"alg":"HS256","jwk":{"kty":"oct","k":"AAAA"}}`, `{"alg":"HS256","kid":"../../dev/null"}`, `{"alg":"HS256","kid":["hmac"]}`, `{"alg":"HS256","typ":"at+jwt","cty":"JWT","x5c":["AAAA"]}`, `{}`, ``, `[]`,
	} {
		f.Add(s, []byte{})
	}
	a := newFuzzAuthenticator(f)
	payload, err := json.Marshal(claims(map[string]any{"exp": 1 << 40}))
	if err != nil {
		f.Fatal(err)
	}
	secret := pairs()["hmac"].private.([]byte)
	public := set(&testing.T{}, "rsa")
	f.Fuzz(func(t *testing.T, header string, other []byte) {
		for _, wrong := range [][]byte{other, nil, public, []byte("hmac")} {
			if c, err := a.caller(signHMAC(header, string(payload), wrong)); err == nil && string(wrong) != string(secret) {
				t.Fatalf("caller(%q) with the secret %q = %+v, want an error", header, wrong, c)
			}
		}
		c, err := a.caller(signHMAC(header, string(payload), secret))
		if err != nil {
			return
		}
		var plain map[string]any
		if err := json.Unmarshal([]byte(header), &plain); err != nil {
			t.Fatalf("caller(%q) = %+v, want an error for invalid JSON", header, c)
		}
		if id, named := plain["kid"]; plain["alg"] != "HS256" || named && id != nil && id != "" && id != "hmac" || c.Name != "jwt:alice" {
			t.Errorf("caller(%q) = %+v, want an error", header, c)
		}
	})
}
