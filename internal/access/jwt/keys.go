package jwt

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/rshub/rshub/internal/backoff"
	"github.com/rshub/rshub/internal/reread"
)

const (
	maxKeys      = 100              // the most keys of an issuer
	maxKeysBytes = 256 << 10        // bytes of the document with the keys
	leastRSA     = 2048             // bits
	leastSecret  = 32               // bytes of a key for HMAC
	fetchTime    = 10 * time.Second // for one fetch of the document
	urlEvery     = 10 * time.Minute // about the time between two fetches
	retryEvery   = 10 * time.Second // about the time after a failed fetch
	askedEvery   = 30 * time.Second // the least time between two fetches caused by a JWT with an unknown key
)

// Keys are the keys that an issuer signs JWTs with: a JWK Set (RFC 7517) at a URL or in a
// file, or public keys in a file (PEM). They are read again when the document changes. If
// it cannot be read, the keys that were read before stay in force.
type Keys struct {
	from     string
	http     *http.Client // nil: the keys come from a file
	document reread.Document

	mu      sync.Mutex
	keys    []key
	version uint64 // of keys; 0: no keys were read yet
	sum     [sha256.Size]byte
	looked  time.Time // when the last fetch began
	asked   backoff.Wakeup
}

// A key is one key of an issuer.
type key struct {
	id         string
	algorithms []jose.SignatureAlgorithm // the algorithms that the key may be used with
	key        any
	thumbprint string // the first part of the RFC 7638 thumbprint
}

// OpenKeys returns the keys of a file, or of a URL that begins with https:// or http://;
// http:// is allowed only for this machine. Keys at a URL are fetched only while Watch
// runs.
func OpenKeys(from string, log *slog.Logger) (*Keys, error) {
	k := &Keys{from: from, asked: backoff.NewWakeup()}
	k.document = reread.Document{What: "the document of keys for JWTs", Log: log, Read: k.look, Pause: k.pause, Requested: k.asked}
	if isURL(from) {
		if err := checkURL(from); err != nil {
			return nil, err
		}
		k.http = &http.Client{
			Timeout: fetchTime,
			CheckRedirect: func(*http.Request, []*http.Request) error {
				return errors.New("a redirect: name the URL that it leads to")
			},
		}
		return k, nil
	}
	if _, err := k.document.Load(context.Background()); err != nil {
		return nil, err
	}
	return k, nil
}

// Watch reads the document again and again. It blocks until ctx is done.
func (k *Keys) Watch(ctx context.Context) { k.document.Watch(ctx) }

// pause is the time until the document is read again.
func (k *Keys) pause(err error) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.http == nil:
		return reread.DefaultPause
	case k.looked.IsZero():
		return 0
	case err != nil:
		return backoff.Jitter(retryEvery)
	}
	return backoff.Jitter(urlEvery)
}

// Err returns why the present document is not in force. It returns nil if it is
// in force.
func (k *Keys) Err() error {
	err := k.document.Err()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.version == 0 && err == nil {
		return fmt.Errorf("the keys for JWTs were not read from %s yet", k.from)
	}
	return err
}

// has reports whether the issuer has the key with a thumbprint. Before any keys were
// read, it returns true for every key. An unknown key may be new, and another hub may
// have read it already; so has makes Watch fetch the keys soon.
func (k *Keys) has(thumbprint string) bool {
	k.mu.Lock()
	has := k.version == 0 || slices.ContainsFunc(k.keys, func(x key) bool { return x.thumbprint == thumbprint })
	k.mu.Unlock()
	if !has {
		k.ask()
	}
	return has
}

// thumbprint returns the first part of the thumbprint of a key (RFC 7638).
func thumbprint(public any) (string, error) {
	var sum []byte
	if secret, ok := public.([]byte); ok { // the library makes no thumbprint of a secret
		all := sha256.Sum256([]byte(`{"k":"` + base64.RawURLEncoding.EncodeToString(secret) + `","kty":"oct"}`))
		sum = all[:]
	} else {
		var err error
		if sum, err = (&jose.JSONWebKey{Key: public}).Thumbprint(crypto.SHA256); err != nil {
			return "", fmt.Errorf("the thumbprint of a key: %w", err)
		}
	}
	return base64.RawURLEncoding.EncodeToString(sum[:12]), nil
}

// find returns the keys that fit a JWT's key ID, which may be empty, and its algorithm.
// It also returns the version of all keys.
func (k *Keys) find(id string, algorithm jose.SignatureAlgorithm) (fit []key, version uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, key := range k.keys {
		if id != "" && key.id != "" && key.id != id {
			continue
		}
		if slices.Contains(key.algorithms, algorithm) {
			fit = append(fit, key)
		}
	}
	return fit, k.version
}

// ask makes Watch fetch the keys soon, because no known key verified a JWT. The issuer
// may have new keys, perhaps under the same IDs.
func (k *Keys) ask() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.http != nil && time.Since(k.looked) >= askedEvery {
		k.asked.Wake()
	}
}

// look reads the document. It reports whether the keys changed.
func (k *Keys) look(ctx context.Context) (changed bool, err error) {
	if k.http != nil {
		k.mu.Lock()
		k.looked = time.Now()
		k.mu.Unlock()
	}
	text, err := k.read(ctx)
	sum := sha256.Sum256(text)
	k.mu.Lock()
	defer k.mu.Unlock()
	if err == nil && k.version > 0 && sum == k.sum {
		return false, nil
	}
	var keys []key
	if err == nil {
		keys, err = parseKeys(text, k.http != nil)
	}
	for i := 0; err == nil && i < len(keys); i++ {
		keys[i].thumbprint, err = thumbprint(keys[i].key)
	}
	if err != nil {
		return false, fmt.Errorf("keys for JWTs from %s: %w", k.from, err)
	}
	k.keys, k.sum = keys, sum
	k.version++
	return true, nil
}

func (k *Keys) read(ctx context.Context) ([]byte, error) {
	if k.http == nil {
		return os.ReadFile(k.from)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, k.from, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/jwk-set+json, application/json")
	resp, err := k.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the answer is %s", resp.Status)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxKeysBytes+1))
	if err == nil && len(text) > maxKeysBytes {
		err = fmt.Errorf("it is longer than %d bytes", maxKeysBytes)
	}
	return text, err
}

// parseKeys reads a document of keys. In a document from the web, it skips keys that the
// hub cannot use, because an issuer may have keys for other purposes. It never takes a
// secret from the web. In a file, which belongs to the operator, a key that cannot be
// used is an error.
func parseKeys(text []byte, web bool) ([]key, error) {
	if block, _ := pem.Decode(text); block != nil && !web {
		keys, err := parsePEM(text)
		if err == nil {
			err = checkTries(keys)
		}
		return keys, err
	}
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(text, &set); err != nil || set.Keys == nil {
		return nil, errors.New(`it is not a JWK Set, {"keys":[…]}`)
	}
	if len(set.Keys) > maxKeys {
		return nil, fmt.Errorf("it has %d keys; at most %d are allowed", len(set.Keys), maxKeys)
	}
	var keys []key
	for i, raw := range set.Keys {
		k, err := parseJWK(raw, web)
		if err == nil {
			keys = append(keys, k)
		} else if !web {
			return nil, fmt.Errorf("key %d: %w", i+1, err)
		}
	}
	if len(keys) == 0 {
		return nil, errors.New("it has no key that can be used: RSA, EC (P-256, P-384, P-521) or Ed25519; for HMAC, in a file only")
	}
	return keys, checkTries(keys)
}

// checkTries returns an error if a token that names its key would have to be checked with
// more than maxTries keys: those with the same ID, and those without an ID.
func checkTries(keys []key) error {
	type group struct {
		id        string
		algorithm jose.SignatureAlgorithm
	}
	size := map[group]int{}
	for _, k := range keys {
		for _, a := range k.algorithms {
			size[group{k.id, a}]++
		}
	}
	for _, k := range keys {
		for _, a := range k.algorithms {
			n := size[group{"", a}]
			if k.id != "" {
				n += size[group{k.id, a}]
			}
			if n > maxTries {
				return fmt.Errorf("got %d keys for %s that no key ID (kid) tells apart, want at most %d; use a JWK Set with a kid for each key", n, a, maxTries)
			}
		}
	}
	return nil
}

func parseJWK(raw []byte, web bool) (key, error) {
	var k jose.JSONWebKey
	if err := k.UnmarshalJSON(raw); err != nil {
		return key{}, errors.New("it is not a kind of key that the hub knows") // the error may show a part of it
	}
	if k.Use != "" && k.Use != "sig" {
		return key{}, fmt.Errorf("it is for %q, not for signatures", k.Use)
	}
	algorithms, err := algorithms(k.Key)
	if err != nil {
		return key{}, err
	}
	if _, secret := k.Key.([]byte); secret && web {
		return key{}, errors.New("a key for HMAC is a secret, and does not belong at a URL")
	}
	if k.Algorithm != "" {
		if !slices.Contains(algorithms, jose.SignatureAlgorithm(k.Algorithm)) {
			return key{}, fmt.Errorf("its algorithm %q does not fit its type", k.Algorithm)
		}
		algorithms = []jose.SignatureAlgorithm{jose.SignatureAlgorithm(k.Algorithm)}
	}
	return key{id: k.KeyID, algorithms: algorithms, key: k.Key}, nil
}

func parsePEM(text []byte) (keys []key, err error) {
	for n := 1; ; n++ {
		block, rest := pem.Decode(text)
		if block == nil {
			if len(bytes.TrimSpace(text)) > 0 {
				return nil, errors.New("something follows the last key")
			}
			return keys, nil
		}
		text = rest
		public, err := x509.ParsePKIXPublicKey(block.Bytes)
		if block.Type != "PUBLIC KEY" || err != nil {
			return nil, fmt.Errorf("key %d is not a PUBLIC KEY", n)
		}
		algorithms, err := algorithms(public)
		if err != nil {
			return nil, fmt.Errorf("key %d: %w", n, err)
		}
		keys = append(keys, key{algorithms: algorithms, key: public})
	}
}

// algorithms returns the algorithms that a key may be used with. This prevents algorithm
// confusion, such as the use of a public key as an HMAC secret.
func algorithms(k any) ([]jose.SignatureAlgorithm, error) {
	switch k := k.(type) {
	case *rsa.PublicKey:
		if k.N.BitLen() < leastRSA {
			return nil, fmt.Errorf("an RSA key must have at least %d bits", leastRSA)
		}
		return []jose.SignatureAlgorithm{jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512}, nil
	case *ecdsa.PublicKey:
		switch k.Curve {
		case elliptic.P256():
			return []jose.SignatureAlgorithm{jose.ES256}, nil
		case elliptic.P384():
			return []jose.SignatureAlgorithm{jose.ES384}, nil
		case elliptic.P521():
			return []jose.SignatureAlgorithm{jose.ES512}, nil
		}
	case ed25519.PublicKey:
		return []jose.SignatureAlgorithm{jose.EdDSA}, nil
	case []byte:
		if len(k) < leastSecret {
			return nil, fmt.Errorf("a key for HMAC must have at least %d bytes", leastSecret)
		}
		return []jose.SignatureAlgorithm{jose.HS256, jose.HS384, jose.HS512}, nil
	}
	return nil, errors.New("it is neither a public key (RSA, EC or Ed25519) nor a key for HMAC")
}

func isURL(from string) bool {
	return strings.HasPrefix(from, "https://") || strings.HasPrefix(from, "http://")
}

// checkURL returns an error if an attacker on the network could replace keys
// that come from a URL.
func checkURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Hostname() == "" || u.User != nil:
		return errors.New("the URL of keys for JWTs is like https://issuer.example.org/keys, without a password")
	case u.Scheme != "https" && u.Hostname() != "localhost" && u.Hostname() != "127.0.0.1" && u.Hostname() != "::1":
		return errors.New("the URL of the keys for JWTs must begin with https://: an attacker who changes the keys on their way could sign any JWT")
	}
	return nil
}
