package subscription

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Keys encrypt the secrets that registries keep, so that a copy of what is kept does not
// show them. The first key encrypts, and all of them decrypt. Each has an ID, which is kept
// with what it encrypts. A nil Keys has no key: then secrets are kept in clear.
//
// The cipher is AES-256-GCM with a random nonce. The subscription's ID is authenticated
// with each secret, so a secret that is moved to another subscription cannot be read.
type Keys struct {
	first string
	all   map[string]cipher.AEAD
}

// keySize is the length of a key in bytes.
const keySize = 32

var keyIDForm = regexp.MustCompile(`^[A-Za-z0-9._-]{1,40}$`)

// ParseKeys reads keys, separated by commas, spaces or line ends. A key is ID:KEY, where KEY is
// 32 bytes in base64. An error never shows a key.
func ParseKeys(text string) (*Keys, error) {
	k := &Keys{all: map[string]cipher.AEAD{}}
	n := 0
	for field := range strings.FieldsFuncSeq(text, func(c rune) bool { return strings.ContainsRune(", \t\r\n", c) }) {
		n++
		id, encoded, ok := strings.Cut(field, ":")
		if !ok || !keyIDForm.MatchString(id) {
			return nil, fmt.Errorf("key %d: want ID:KEY, with an ID of 1 to 40 letters, digits, dots, hyphens and underscores", n)
		}
		key, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil || len(key) != keySize {
			return nil, fmt.Errorf("key %s: want %d bytes of base64; use openssl rand -base64 %[2]d", id, keySize)
		}
		if k.all[id] != nil {
			return nil, fmt.Errorf("key %s: duplicate ID", id)
		}
		block, err := aes.NewCipher(key)
		if err != nil {
			return nil, fmt.Errorf("key %s: %w", id, err)
		}
		if k.all[id], err = cipher.NewGCMWithRandomNonce(block); err != nil {
			return nil, fmt.Errorf("key %s: %w", id, err)
		}
		if k.first == "" {
			k.first = id
		}
	}
	if n == 0 {
		return nil, errors.New("no keys; want ID:KEY")
	}
	return k, nil
}

// encrypts reports whether there is a key to encrypt with.
func (k *Keys) encrypts() bool { return k != nil && k.first != "" }

// has reports whether there is a key with an ID.
func (k *Keys) has(id string) bool { return k != nil && k.all[id] != nil }

// The uses of a secret. Each is authenticated with the secret, so one cannot be put in the
// place of another.
const (
	useSecret = "secret"
	useFormer = "former"
	useVerify = "verify"
)

// seal encrypts a secret of a subscription with the first key. The empty secret stays empty.
func (k *Keys) seal(id ID, use, secret string) string {
	if secret == "" {
		return ""
	}
	return base64.StdEncoding.EncodeToString(k.all[k.first].Seal(nil, nil, []byte(secret), bound(id, use)))
}

// open decrypts what seal made with the key of an ID, which must be there.
func (k *Keys) open(key string, id ID, use, sealed string) (string, error) {
	if sealed == "" {
		return "", nil
	}
	box, err := base64.StdEncoding.DecodeString(sealed)
	if err == nil {
		box, err = k.all[key].Open(nil, nil, box, bound(id, use))
	}
	if err != nil {
		return "", fmt.Errorf("decrypt secret with key %s: it is damaged, or another key had this ID", key)
	}
	return string(box), nil
}

// bound returns what is authenticated with a secret.
func bound(id ID, use string) []byte { return append([]byte("rshub "+use+" "), id[:]...) }
