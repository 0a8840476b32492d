package access

import (
	"bufio"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
)

// Anyone is the name that a tokens file uses for callers without a token.
const Anyone = "anyone"

// Tokens knows callers by the digests of their tokens. It does not change after
// ReadTokens.
type Tokens struct {
	callers map[[sha256.Size]byte]Caller
	anyone  Rights
}

// tokenPrefix begins every token, so that a token is recognized where it must
// not be: in a log, an error or a repository.
const tokenPrefix = "rshub_"

// NewToken makes a token of 130 random bits. It returns the token and the
// digest of it that a tokens file holds.
func NewToken() (token, digest string) {
	token = tokenPrefix + rand.Text()
	return token, Digest(token)
}

// Digest returns what a tokens file holds of a token: "sha256:" and the token's
// SHA-256 in hex. A token is random, so its digest needs no salt.
func Digest(token string) string {
	sum := sha256.Sum256([]byte(token))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// OpenTokens reads the tokens file at path.
func OpenTokens(path string) (*Tokens, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read tokens: %w", err)
	}
	defer f.Close()
	t, err := ReadTokens(f)
	if err != nil {
		return nil, fmt.Errorf("read tokens from %s: %w", path, err)
	}
	return t, nil
}

// ReadTokens reads a tokens file. A line is
//
//	NAME sha256:HEX RIGHT[,RIGHT…]
//
// or "anyone - RIGHT[,RIGHT…]". The second form gives rights to callers without a
// token; callers with a token have them too. Empty lines do not count, nor does
// the rest of a line after "#". An error names the line, and never shows a token
// that was written into the file by mistake.
func ReadTokens(r io.Reader) (*Tokens, error) {
	t := &Tokens{callers: map[[sha256.Size]byte]Caller{}}
	names := map[string]bool{}
	lines := bufio.NewScanner(r)
	n := 1
	for ; lines.Scan(); n++ {
		line, _, _ := strings.Cut(lines.Text(), "#")
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		if err := t.add(names, fields); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("line %d: %w", n, err)
	}
	return t, nil
}

// add takes in one line, split into its fields. names has the names of all
// lines before.
func (t *Tokens) add(names map[string]bool, fields []string) error {
	if len(fields) < 3 {
		return errors.New("a line is NAME sha256:HEX RIGHTS")
	}
	name, digest := fields[0], fields[1]
	switch {
	case strings.Contains(name, tokenPrefix):
		return errors.New("a name comes first, and no token belongs here, only its digest")
	case names[name]:
		return fmt.Errorf("the name %q is there twice", name)
	}
	names[name] = true
	if name == Anyone {
		if digest != "-" {
			return fmt.Errorf("%s has no token; its second field is -", Anyone)
		}
		var err error
		t.anyone, err = ParseRights(strings.Join(fields[2:], ","))
		return err
	}
	hexed, ok := strings.CutPrefix(digest, "sha256:")
	sum, err := hex.DecodeString(hexed)
	if !ok || err != nil || len(sum) != sha256.Size {
		return fmt.Errorf("the token of %q is not sha256: and 64 hex digits", name)
	}
	key := [sha256.Size]byte(sum)
	if other, ok := t.callers[key]; ok {
		return fmt.Errorf("%q has the same token as %q", name, other.Name)
	}
	rights, err := ParseRights(strings.Join(fields[2:], ","))
	t.callers[key] = Caller{Name: name, Rights: rights}
	return err
}

// quote quotes a text for an error message. It hides the text if a token is in
// it.
func quote(s string) string {
	if strings.Contains(s, tokenPrefix) {
		return "(a token, which is not shown)"
	}
	return strconv.Quote(s)
}

// Caller returns the caller whose bearer token r carries; a request without a
// token gets the rights of Anyone. An unknown token is a problem even where no
// token is needed: otherwise its owner would not notice the mistake. The
// token's digest is looked up, not compared, so the time that it takes says
// nothing about other tokens.
func (t *Tokens) Caller(r *http.Request) (Caller, error) {
	header := r.Header.Get("Authorization")
	if header == "" {
		return Caller{Rights: t.anyone}, nil
	}
	scheme, token, ok := strings.Cut(header, " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return Caller{}, unauthorized("invalid_request", "the Authorization is not of the form Bearer TOKEN")
	}
	c, ok := t.callers[sha256.Sum256([]byte(strings.TrimSpace(token)))]
	if !ok {
		return Caller{}, unauthorized("invalid_token", "the token is not known here")
	}
	c.Rights = c.Rights.with(t.anyone)
	return c, nil
}
