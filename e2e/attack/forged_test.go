package attack

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// An issuer signs JWTs that the hub accepts.
type issuer struct {
	t    *testing.T
	keys string // path of the public key
	key  ed25519.PrivateKey
}

func newIssuer(t *testing.T, dir string) *issuer {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	i := &issuer{t: t, keys: filepath.Join(dir, "issuer.pem"), key: private}
	if err := os.WriteFile(i.keys, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return i
}

func (i *issuer) env() []string {
	return []string{"RSHUB_JWT_KEYS=" + i.keys, "RSHUB_JWT_ISSUER=https://issuer.example.org/", "RSHUB_JWT_AUDIENCE=hub"}
}

func part(members map[string]any) string {
	text, _ := json.Marshal(members) // strings and numbers
	return base64.RawURLEncoding.EncodeToString(text)
}

// claims returns claims with a scope.
func claims(scope string) string {
	return part(map[string]any{"iss": "https://issuer.example.org/", "aud": "hub", "sub": "eve", "scope": scope, "exp": time.Now().Add(time.Hour).Unix()})
}

func (i *issuer) sign(header map[string]any, claims string) string {
	text := part(header) + "." + claims
	return text + "." + base64.RawURLEncoding.EncodeToString(ed25519.Sign(i.key, []byte(text)))
}

// forgeries are attacks with forged or expired tokens. Package internal/access/jwt tests more of them.
func forgeries(i *issuer) []attack {
	return []attack{{"forged and replayed tokens", func(a *attacker) {
		elsewhere := newTrap(a.t) // a bystanderAddr from which keys must not be read
		ed := map[string]any{"alg": "EdDSA"}
		good := i.sign(ed, claims("follow:calm"))
		_, mine, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			a.t.Fatal(err)
		}
		other := &issuer{key: mine}
		headers := map[string]string{
			"extended":     "Bearer " + a.token + "A",
			"foreign keys": "Bearer " + other.sign(map[string]any{"alg": "EdDSA", "jku": elsewhere.url + "/keys", "x5u": elsewhere.url + "/chain"}, claims("publish:calm")),
		}
		change := []byte(`{"changes":[{"loc":"https://evil.example.org/","change":"created"}]}`)
		topic := a.hub.Topic(calmSet)
		for a.ctx.Err() == nil {
			for name, header := range headers {
				if status, text := a.do(http.MethodPost, topic, change, "Authorization: "+header, "Content-Type: application/json"); status != 401 && status != 429 {
					a.t.Errorf("token with %s = %d, want 401: %s", name, status, text)
				} else if len(header) > 50 && strings.Contains(text, header[10:]) {
					a.t.Errorf("response has the token: %s", text)
				}
			}
			// A token without the right, and tokens in the query.
			for url, want := range map[string]int{topic: 403, topic + "?access_token=" + a.token: 400, topic + "?token=" + a.token: 400} {
				if status, text := a.do(http.MethodPost, url, change, "Authorization: Bearer "+good, "Content-Type: application/json"); status != want || strings.Contains(text, a.token) {
					a.t.Errorf("POST %s = %d, want %d without the token: %s", url, status, want, text)
				}
			}
		}
		a.wantStatuses(400, 401, 403, 429)
		good = "Authorization: Bearer " + i.sign(ed, claims("publish:evil"))
		hubtest.Must(a.t, http.StatusOK, http.MethodPost, a.hub.Topic("evil"), change, good, "Content-Type: application/json")
		if said := a.hub.Stderr.String(); strings.Contains(said, a.token) || strings.Contains(said, good[60:]) {
			a.t.Error("log has a token")
		}
	}}}
}
