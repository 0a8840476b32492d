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

// Anyone is the name in a tokens file that stands for callers without a token.
const Anyone = "anyone"

// JWTPrefix is the prefix of the name of each caller with a JWT. No name in a tokens file can have
// it.
const JWTPrefix = "jwt:"

// Tokens is the content of a tokens file. It is immutable.
type Tokens struct {
	callers map[[sha256.Size]byte]Caller // by digest of the token
	names   map[string][sha256.Size]byte // token digests by name; the digest of Anyone is zero
	anyone  Rights
}

// tokenPrefix is the prefix of every token. It makes a token recognizable where it must not be: in
// a log, an error or a repository.
const tokenPrefix = "rshub_"

// NewToken creates a token of 130 random bits. It returns the token and its digest for a tokens
// file.
func NewToken() (token, digest string) {
	token = tokenPrefix + rand.Text()
	return token, Digest(token)
}

// Digest returns the digest of a token in a tokens file: "sha256:" and the SHA-256 of the token in
// hex. A token is random, so its digest needs no salt.
func Digest(token string) string {
	sum := sha256.Sum256([]byte(token))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// ReadTokens reads a tokens file. A line is
//
//	NAME sha256:HEX RIGHT[,RIGHT…] [expires=TIME] [limits=LIMIT[,LIMIT…]]
//
// or "anyone - RIGHT[,RIGHT…]". The second form gives rights to callers without a token; callers
// with a token have them too. TIME is like 2027-01-31T12:00:00Z, or a day like 2027-01-31, which
// means its first moment in UTC. LIMIT has the form of limit.Parse. Empty lines and everything
// after "#" are ignored. An error names the line, and never contains a token that was written into
// the file by mistake.
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
		if err := t.addLine(fields); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("line %d: %w", n, err)
	}
	return t, nil
}

// addLine adds the caller in a line, which is split into fields.
func (t *Tokens) addLine(fields []string) error {
	if len(fields) < 3 {
		return errors.New("too few fields; want NAME sha256:HEX RIGHTS")
	}
	name, digest := fields[0], fields[1]
	_, duplicate := t.names[name]
	switch {
	case strings.Contains(name, tokenPrefix):
		return errors.New("token in place of a name; want NAME sha256:HEX RIGHTS with the digest of the token, never the token itself")
	case duplicate:
		return fmt.Errorf("duplicate name %q", name)
	}
	t.names[name] = [sha256.Size]byte{}
	caller, err := parseCaller(fields[2:])
	if err != nil {
		return err
	}
	if name == Anyone {
		if digest != "-" {
			return fmt.Errorf("%s has no token; want - as the second field", Anyone)
		}
		if !caller.Expires.IsZero() {
			return fmt.Errorf("the rights of %s cannot expire", Anyone)
		}
		if caller.Limits != nil {
			return fmt.Errorf("%s cannot have limits; configure the limits per address instead", Anyone)
		}
		t.anyone = caller.Rights
		return nil
	}
	if strings.HasPrefix(name, JWTPrefix) {
		return fmt.Errorf("invalid name %q; the prefix %s is reserved for callers with a JWT", name, JWTPrefix)
	}
	hexed, ok := strings.CutPrefix(digest, "sha256:")
	sum, err := hex.DecodeString(hexed)
	if !ok || err != nil || len(sum) != sha256.Size {
		return fmt.Errorf("invalid digest of the token of %q; want sha256: and 64 hex digits", name)
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

// parseCaller parses the fields of a line after the digest: the rights and the optional fields.
func parseCaller(fields []string) (c Caller, err error) {
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
			return Caller{}, fmt.Errorf("unknown or duplicate field %s; want expires=TIME or limits=LIMITS", quote(field))
		}
	}
	c.Rights, err = ParseRights(strings.Join(words, ","))
	return c, err
}

// ParseTime parses a time in the form of a tokens file; see ReadTokens.
func ParseTime(text string) (time.Time, error) {
	for _, form := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(form, text); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, fmt.Errorf("invalid time %s; want one such as 2027-01-31T12:00:00Z or 2027-01-31", quote(text))
}

// quote quotes a text for an error message. It hides a text that contains a token.
func quote(s string) string {
	if strings.Contains(s, tokenPrefix) {
		return "(a token, which is not shown)"
	}
	return strconv.Quote(s)
}

// anonymous returns a caller without a token.
func (t *Tokens) anonymous() Caller { return Caller{Rights: Rights{anyone: &t.anyone}} }

// caller returns the caller whose token has the digest.
func (t *Tokens) caller(digest [sha256.Size]byte) (Caller, error) {
	c, ok := t.callers[digest]
	if !ok {
		return Caller{}, InvalidToken("the token is unknown")
	}
	if !c.Expires.IsZero() && !time.Now().Before(c.Expires) {
		return Caller{}, ExpiredToken()
	}
	c.Rights.anyone = &t.anyone
	c.TokenID = binary.BigEndian.Uint64(digest[:])
	return c, nil
}

// CallerByName returns the caller with a name. See Authenticator.
func (t *Tokens) CallerByName(name, _ string) (Caller, bool) {
	if name == "" {
		return t.anonymous(), true
	}
	digest, ok := t.names[name]
	if !ok || name == Anyone {
		return Caller{}, false
	}
	c, err := t.caller(digest)
	return c, err == nil
}
