package subscription

import (
	"cmp"
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Keys encrypt the secrets that registries store, so that a copy of the store does not contain them. The
// first key encrypts, and all decrypt. The ID of the key is stored with what it encrypts. A nil Keys has
// no keys: secrets are stored in clear text.
//
// The cipher is AES-256-GCM with a random nonce. The ID of the subscription and the use are authenticated
// with each secret, so a secret that is moved to another place cannot be decrypted.
type Keys struct {
	first string
	all   map[string]cipher.AEAD
}

// keySize is the length of a key in bytes.
const keySize = 32

var keyIDForm = regexp.MustCompile(`^[A-Za-z0-9._-]{1,40}$`)

// ParseKeys parses keys that are separated by commas, spaces or line ends. A key is ID:KEY, where KEY is
// 32 bytes in base64. An error never contains a key.
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
		k.first = cmp.Or(k.first, id)
	}
	if n == 0 {
		return nil, errors.New("no keys; want ID:KEY")
	}
	return k, nil
}

// encrypts reports whether there is a key to encrypt with.
func (k *Keys) encrypts() bool { return k != nil && k.first != "" }

// A secret is a text to encrypt or decrypt in place.
type secret struct {
	use  string // authenticated with the text
	text *string
}

// seal encrypts secrets of a subscription with the first key, and sets sealed to its ID. It does nothing
// if sealed is set, or if there are no secrets or no keys.
func (k *Keys) seal(sealed *string, id ID, secrets ...secret) {
	if *sealed != "" || !k.encrypts() || !slices.ContainsFunc(secrets, func(s secret) bool { return *s.text != "" }) {
		return
	}
	*sealed = k.first
	for _, s := range secrets {
		if *s.text != "" {
			*s.text = base64.StdEncoding.EncodeToString(k.all[k.first].Seal(nil, nil, []byte(*s.text), s.bound(id)))
		}
	}
}

// open decrypts secrets with the key whose ID is in sealed, and clears sealed. It does nothing if there is
// no such key.
func (k *Keys) open(sealed *string, id ID, secrets ...secret) error {
	if k == nil || k.all[*sealed] == nil {
		return nil
	}
	for _, s := range secrets {
		if *s.text == "" {
			continue
		}
		box, err := base64.StdEncoding.DecodeString(*s.text)
		if err == nil {
			box, err = k.all[*sealed].Open(nil, nil, box, s.bound(id))
		}
		if err != nil {
			return fmt.Errorf("decrypt secret with key %s: it is damaged, or another key had this ID", *sealed)
		}
		*s.text = string(box)
	}
	*sealed = ""
	return nil
}

// bound returns what is authenticated with a secret.
func (s *secret) bound(id ID) []byte { return append([]byte("rshub "+s.use+" "), id[:]...) }
