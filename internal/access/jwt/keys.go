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
	maxKeys           = 100              // maximum number of keys of an issuer
	maxDocumentBytes  = 256 << 10        // maximum size of the document with the keys
	minRSABits        = 2048             // bits
	minSecretBytes    = 32               // minimum size of a key for HMAC
	fetchTimeout      = 10 * time.Second // for a fetch of the document
	fetchInterval     = 10 * time.Minute // approximate time between two fetches
	retryInterval     = 10 * time.Second // approximate time after a failed fetch
	requestedInterval = 30 * time.Second // minimum time between two fetches caused by a JWT with an unknown key
)

// Keys are the keys with which an issuer signs JWTs: a JWK Set (RFC 7517) at a URL or in a file, or
// public keys in a file (PEM). They are reloaded when the document changes. If it cannot be read,
// the previous keys stay in force.
type Keys struct {
	source   string
	http     *http.Client // nil if the keys are in a file
	document reread.Document

	mu             sync.Mutex
	keys           []key
	version        uint64 // version of keys; 0 before the first load
	sum            [sha256.Size]byte
	lastFetch      time.Time // start of the last fetch
	fetchRequested backoff.Wakeup
}

// A key is one key of an issuer.
type key struct {
	id         string
	algorithms []jose.SignatureAlgorithm // algorithms with which the key may be used
	key        any
	thumbprint string // first part of the RFC 7638 thumbprint
}

// OpenKeys returns the keys in a file, or at a URL with https:// or http://; http:// is allowed
// only for this machine. Keys at a URL are fetched only while Watch runs.
func OpenKeys(from string, log *slog.Logger) (*Keys, error) {
	k := &Keys{source: from, fetchRequested: backoff.NewWakeup()}
	k.document = reread.Document{What: "the document of keys for JWTs", Log: log, Read: k.load, Pause: k.pause, Requested: k.fetchRequested}
	if isURL(from) {
		if err := checkURL(from); err != nil {
			return nil, err
		}
		k.http = &http.Client{
			Timeout: fetchTimeout,
			CheckRedirect: func(*http.Request, []*http.Request) error {
				return errors.New("unexpected redirect; configure the URL that it leads to")
			},
		}
		return k, nil
	}
	if _, err := k.document.Load(context.Background()); err != nil {
		return nil, err
	}
	return k, nil
}

// Watch reloads the document periodically. It blocks until ctx is done.
func (k *Keys) Watch(ctx context.Context) { k.document.Watch(ctx) }

// pause returns the time until the next load of the document.
func (k *Keys) pause(err error) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.http == nil:
		return reread.DefaultPause
	case k.lastFetch.IsZero():
		return 0
	case err != nil:
		return backoff.Jitter(retryInterval)
	}
	return backoff.Jitter(fetchInterval)
}

// Err returns why the current document is not in force, or nil if it is.
func (k *Keys) Err() error {
	err := k.document.Err()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.version == 0 && err == nil {
		return fmt.Errorf("keys for JWTs were not yet read from %s", k.source)
	}
	return err
}

// has reports whether the issuer has the key with a thumbprint. Before the first load, it returns
// true for every key. An unknown key may be new, and another hub may already have it, so has makes
// Watch fetch the keys soon.
func (k *Keys) has(thumbprint string) bool {
	k.mu.Lock()
	has := k.version == 0 || slices.ContainsFunc(k.keys, func(x key) bool { return x.thumbprint == thumbprint })
	k.mu.Unlock()
	if !has {
		k.requestFetch()
	}
	return has
}

// thumbprint returns the first part of the thumbprint of a key (RFC 7638).
func thumbprint(public any) (string, error) {
	var sum []byte
	if secret, ok := public.([]byte); ok { // the library does not support thumbprints of secrets
		all := sha256.Sum256([]byte(`{"k":"` + base64.RawURLEncoding.EncodeToString(secret) + `","kty":"oct"}`))
		sum = all[:]
	} else {
		var err error
		if sum, err = (&jose.JSONWebKey{Key: public}).Thumbprint(crypto.SHA256); err != nil {
			return "", fmt.Errorf("compute thumbprint of key: %w", err)
		}
	}
	return base64.RawURLEncoding.EncodeToString(sum[:12]), nil
}

// find returns the keys that match the key ID of a JWT, which may be empty, and its algorithm. It
// also returns the version of all keys.
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

// requestFetch makes Watch fetch the keys soon, because no known key verified a JWT. The issuer may
// have new keys, perhaps with the same IDs.
func (k *Keys) requestFetch() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.http != nil && time.Since(k.lastFetch) >= requestedInterval {
		k.fetchRequested.Wake()
	}
}

// load reads the document, and reports whether the keys changed.
func (k *Keys) load(ctx context.Context) (changed bool, err error) {
	if k.http != nil {
		k.mu.Lock()
		k.lastFetch = time.Now()
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
		return false, fmt.Errorf("read keys for JWTs from %s: %w", k.source, err)
	}
	k.keys, k.sum = keys, sum
	k.version++
	return true, nil
}

// read returns the text of the document.
func (k *Keys) read(ctx context.Context) ([]byte, error) {
	if k.http == nil {
		return os.ReadFile(k.source)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, k.source, nil)
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
		return nil, fmt.Errorf("got status %s, want 200 OK", resp.Status)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxDocumentBytes+1))
	if err == nil && len(text) > maxDocumentBytes {
		err = fmt.Errorf("document is too large; want at most %d bytes", maxDocumentBytes)
	}
	return text, err
}

// parseKeys parses a document of keys. In a document from the web, it skips keys that the hub
// cannot use, because an issuer may have keys for other purposes, and never accepts a secret. In a
// file, which belongs to the operator, an unusable key is an error.
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
		return nil, errors.New(`document is not a JWK Set, {"keys":[…]}`)
	}
	if len(set.Keys) > maxKeys {
		return nil, fmt.Errorf("got %d keys, want at most %d", len(set.Keys), maxKeys)
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
		return nil, errors.New("no usable key; want RSA, EC (P-256, P-384, P-521) or Ed25519, or HMAC in a file only")
	}
	return keys, checkTries(keys)
}

// checkTries returns an error if a token with a key ID would have to be checked with more than
// maxTries keys: those with the same ID, and those without an ID.
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
		return key{}, errors.New("unsupported kind of key") // err may contain a part of the key
	}
	if k.Use != "" && k.Use != "sig" {
		return key{}, fmt.Errorf("use: got %q, want sig", k.Use)
	}
	algorithms, err := algorithms(k.Key)
	if err != nil {
		return key{}, err
	}
	if _, secret := k.Key.([]byte); secret && web {
		return key{}, errors.New("key for HMAC at a URL; it is a secret, so use a file")
	}
	if k.Algorithm != "" {
		if !slices.Contains(algorithms, jose.SignatureAlgorithm(k.Algorithm)) {
			return key{}, fmt.Errorf("algorithm %q does not match the type of the key", k.Algorithm)
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
				return nil, errors.New("unexpected data after the last key")
			}
			return keys, nil
		}
		text = rest
		public, err := x509.ParsePKIXPublicKey(block.Bytes)
		if block.Type != "PUBLIC KEY" || err != nil {
			return nil, fmt.Errorf("key %d: not a PUBLIC KEY", n)
		}
		algorithms, err := algorithms(public)
		if err != nil {
			return nil, fmt.Errorf("key %d: %w", n, err)
		}
		keys = append(keys, key{algorithms: algorithms, key: public})
	}
}

// algorithms returns the algorithms with which a key may be used. This prevents algorithm
// confusion, such as the use of a public key as an HMAC secret.
func algorithms(k any) ([]jose.SignatureAlgorithm, error) {
	switch k := k.(type) {
	case *rsa.PublicKey:
		if k.N.BitLen() < minRSABits {
			return nil, fmt.Errorf("RSA key is too short; want at least %d bits", minRSABits)
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
		if len(k) < minSecretBytes {
			return nil, fmt.Errorf("key for HMAC is too short; want at least %d bytes", minSecretBytes)
		}
		return []jose.SignatureAlgorithm{jose.HS256, jose.HS384, jose.HS512}, nil
	}
	return nil, errors.New("neither a public key (RSA, EC or Ed25519) nor a key for HMAC")
}

func isURL(from string) bool {
	return strings.HasPrefix(from, "https://") || strings.HasPrefix(from, "http://")
}

// checkURL returns an error if an attacker on the network could replace the keys at a URL.
func checkURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Hostname() == "" || u.User != nil:
		return errors.New("invalid URL of keys for JWTs; want one such as https://issuer.example.org/keys, without a password")
	case u.Scheme != "https" && u.Hostname() != "localhost" && u.Hostname() != "127.0.0.1" && u.Hostname() != "::1":
		return errors.New("URL of keys for JWTs must start with https://; an attacker who changes the keys in transit could sign any JWT")
	}
	return nil
}
