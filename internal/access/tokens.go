package access

import (
	"bufio"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/rshub/rshub/internal/limit"
)

// Anyone is the name that a tokens file uses for callers without a token.
const Anyone = "anyone"

// JWTPrefix begins the name of each caller with a JWT, so no name in a tokens file can be
// the same.
const JWTPrefix = "jwt:"

// Tokens are the content of a tokens file: callers by the digests of their tokens. They do not
// change after ReadTokens.
type Tokens struct {
	callers map[[sha256.Size]byte]Caller
	names   map[string][sha256.Size]byte // token digests by name; the digest of Anyone is zero
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

// Digest returns the form in which a tokens file holds a token: "sha256:" and
// the token's SHA-256 in hex. A token is random, so its digest needs no salt.
func Digest(token string) string {
	sum := sha256.Sum256([]byte(token))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// ReadTokens reads a tokens file. A line is
//
//	NAME sha256:HEX RIGHT[,RIGHT…] [expires=TIME] [limits=LIMIT[,LIMIT…]]
//
// or "anyone - RIGHT[,RIGHT…]". The second form gives rights to callers without a token;
// callers with a token have them too. TIME is like 2027-01-31T12:00:00Z, or a day like
// 2027-01-31, which means its first moment in UTC. LIMIT is as limit.Parse reads it.
// Empty lines and everything after "#" are ignored. An error names the line, and never
// shows a token that was written into the file by mistake.
func ReadTokens(r io.Reader) (*Tokens, error) {
	t := &Tokens{callers: map[[sha256.Size]byte]Caller{}, names: map[string][sha256.Size]byte{}}
	lines := bufio.NewScanner(r)
	n := 1
	for ; lines.Scan(); n++ {
		line, _, _ := strings.Cut(lines.Text(), "#")
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		if err := t.add(fields); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("line %d: %w", n, err)
	}
	return t, nil
}

// add takes in one line, split into its fields.
func (t *Tokens) add(fields []string) error {
	if len(fields) < 3 {
		return errors.New("a line is NAME sha256:HEX RIGHTS")
	}
	name, digest := fields[0], fields[1]
	_, twice := t.names[name]
	switch {
	case strings.Contains(name, tokenPrefix):
		return errors.New("a name comes first; the line holds the digest of the token, never the token")
	case twice:
		return fmt.Errorf("the name %q is there twice", name)
	}
	t.names[name] = [sha256.Size]byte{}
	caller, err := readCaller(fields[2:])
	if err != nil {
		return err
	}
	if name == Anyone {
		if digest != "-" {
			return fmt.Errorf("%s has no token; its second field must be -", Anyone)
		}
		if !caller.Expires.IsZero() {
			return fmt.Errorf("the rights of %s cannot expire", Anyone)
		}
		if caller.Limits != nil {
			return fmt.Errorf("%s cannot have limits here: configure the limits of each address instead", Anyone)
		}
		t.anyone = caller.Rights
		return nil
	}
	if strings.HasPrefix(name, JWTPrefix) {
		return fmt.Errorf("the name %q begins with %s, which is reserved for callers with a JWT", name, JWTPrefix)
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
	caller.Name = name
	t.names[name] = key
	t.callers[key] = caller
	return nil
}

// readCaller reads the fields of a line after the digest: the rights, and the optional
// fields.
func readCaller(fields []string) (c Caller, err error) {
	var words []string
	for _, field := range fields {
		name, value, ok := strings.Cut(field, "=")
		switch {
		case !ok:
			words = append(words, field)
		case name == "expires" && c.Expires.IsZero():
			if c.Expires, err = ParseTime(value); err != nil {
				return Caller{}, err
			}
		case name == "limits" && c.Limits == nil:
			limits, err := limit.Parse(value)
			if err != nil {
				return Caller{}, err
			}
			c.Limits = &limits
		default:
			return Caller{}, fmt.Errorf("%s is not expires=TIME or limits=LIMITS, or is there twice", quote(field))
		}
	}
	c.Rights, err = ParseRights(strings.Join(words, ","))
	return c, err
}

// ParseTime reads a time in the form of a tokens file; see ReadTokens.
func ParseTime(text string) (time.Time, error) {
	for _, form := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(form, text); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, fmt.Errorf("%s is not a time such as 2027-01-31T12:00:00Z or 2027-01-31", quote(text))
}

// quote quotes a text for an error message. It hides the text if the text
// contains a token.
func quote(s string) string {
	if strings.Contains(s, tokenPrefix) {
		return "(a token, which is not shown)"
	}
	return strconv.Quote(s)
}

// withoutToken returns a caller without a token.
func (t *Tokens) withoutToken() Caller { return Caller{Rights: Rights{anyone: &t.anyone}} }

// caller returns the caller with the token of a digest.
func (t *Tokens) caller(digest [sha256.Size]byte) (Caller, error) {
	c, ok := t.callers[digest]
	if !ok {
		return Caller{}, Unknown("the token is not known here")
	}
	if !c.Expires.IsZero() && !time.Now().Before(c.Expires) {
		return Caller{}, Expired()
	}
	c.Rights.anyone = &t.anyone
	c.Mark = binary.BigEndian.Uint64(digest[:])
	return c, nil
}

// Named returns the caller of a name. See Authenticator.
func (t *Tokens) Named(name, _ string) (Caller, bool) {
	if name == "" {
		return t.withoutToken(), true
	}
	digest, ok := t.names[name]
	if !ok || name == Anyone {
		return Caller{}, false
	}
	c, err := t.caller(digest)
	return c, err == nil
}
