package access

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"
)

// bearer matches RFC 6750 section 2.1 as leniently as clients need it: any spaces, and any
// characters in the token.
var bearer = regexp.MustCompile(`(?is)^bearer (.*)$`)

// For any Authorization header, only a known token has rights, and errors do not contain it.
func FuzzAuthorization(f *testing.F) {
	for _, s := range []string{
		"", "Bearer " + alicesToken, "bearer  " + alicesToken + "\t", "Bearer", "Bearer ", alicesToken, "Basic " + alicesToken, "Bearer " + alicesToken + ", Bearer x",
		"Bearer\t" + alicesToken, "Bearer " + Digest(alicesToken), "Bearer\u00a0" + alicesToken, "Bearer \x00" + alicesToken, "Bearer " + strings.ToLower(alicesToken), "Bearer a.b.c",
	} {
		f.Add(s)
	}
	known := openTokens(f, tokensFile("anyone - follow:open", "alice ALICE publish:demo"))
	f.Fuzz(func(t *testing.T, header string) {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header["Authorization"] = []string{header}
		want := "" // the name; - for an error
		switch found := bearer.FindStringSubmatch(header); {
		case header == "":
		case found != nil && strings.TrimSpace(found[1]) == alicesToken:
			want = "alice"
		default:
			want = "-"
		}
		c, err := known.Caller(r)
		switch {
		case err != nil && want != "-", err == nil && want != c.Name:
			t.Errorf("Caller() with %q = %+v, %v, want %q", header, c, err, want)
		case err != nil && (!refused(err) || c.Rights.Follow("open") || strings.Contains(err.Error(), "rshub_")):
			t.Errorf("Caller() with %q = %+v, %v, want no token and no rights", header, c, err)
		case err == nil && (c.Rights.Publish("demo") != (want == "alice") || !c.Rights.Follow("open")):
			t.Errorf("Caller() with %q: got the rights %+v", header, c.Rights)
		}
	})
}

// randomKeys are different keys in each process. A fuzz test runs in several processes, and the
// ticket of another process is invalid.
type randomKeys [32]byte

func newRandomKeys() *randomKeys {
	k := &randomKeys{}
	_, _ = rand.Read(k[:]) // it never fails
	return k
}

func (k *randomKeys) TicketKey(_ context.Context, hour int64) ([]byte, error) {
	key := sha256.Sum256(binary.BigEndian.AppendUint64(k[:], uint64(hour)))
	return key[:], nil
}

// Only a ticket issued by a hub is accepted.
func FuzzTicket(f *testing.F) {
	file := openTokens(f, tokensFile("alice ALICE follow:a,publish:a,operate"))
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Authorization", "Bearer "+alicesToken)
	alice, err := file.Caller(r)
	if err != nil {
		f.Fatal(err)
	}
	tickets := NewTickets(file, newRandomKeys())
	good, _, err := tickets.New(f.Context(), alice, "a", MaxTicketLifetime)
	if err != nil {
		f.Fatal(err)
	}
	sealed, err := base64.RawURLEncoding.DecodeString(good)
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{"", "A", "AA", good, good[:len(good)-1], good + "=", good + "\n", good + "A", " " + good, alicesToken, strings.Repeat("A", 5000)} {
		f.Add([]byte(seed), 0, byte(0))
	}
	f.Add([]byte{}, 0, byte(1))
	f.Add([]byte{}, len(sealed)-1, byte(128))
	f.Fuzz(func(t *testing.T, text []byte, at int, flip byte) {
		changed := append([]byte{}, sealed...)
		changed[max(at, -at, 0)%len(changed)] ^= flip
		for _, text := range []string{string(text), base64.RawURLEncoding.EncodeToString(text), base64.RawURLEncoding.EncodeToString(changed)} {
			c, err := tickets.Caller(t.Context(), text)
			if err != nil {
				if !refused(err) || c.Rights.Follow("a") {
					t.Errorf("Caller(%q) = %+v, %v, want 401 and no rights", text, c, err)
				}
				continue
			}
			// Base64 may have other spellings of the same bytes: line ends, and bits that do not count.
			if plain, _ := base64.RawURLEncoding.DecodeString(text); string(plain) != string(sealed) {
				t.Fatalf("%q is a ticket: %+v", text, c)
			}
			if c.Name != "alice" || !c.Rights.FollowPrivate("a") || c.Rights.Publish("a") || c.Rights.Operate() || c.Rights.Follow("b") {
				t.Errorf("Caller(): got %+v, want the rights of the ticket", c)
			}
		}
	})
}

// A line of a tokens file means what its fields say, regardless of the separators.
func FuzzTokensLine(f *testing.F) {
	f.Add("alice", "publish:demo,follow:*", "2999-01-31", "requests:5/s", " ", true)
	f.Add("a#b", "operate", "", "", "\t", false)
	f.Add("anyone", "follow:a", "", "", "  ", false)
	f.Add("jwt:x", "follow:a", "", "", " ", false)
	f.Add("alice", "follow:a*b", "2020-01-01T00:00:00Z", "bytes:1GiB/m", " ", true)
	f.Add("alice", "follow:\u00a0a", "2020", "connections:none", "\v", true)
	f.Fuzz(func(t *testing.T, name, rights, expires, limits, space string, comment bool) {
		if strings.TrimSpace(space) != "" || space == "" || strings.ContainsAny(space, "\r\n") || strings.ContainsAny(name+rights+expires+limits, "#= \n") || len(strings.Fields(name)) != 1 || len(strings.Fields(rights)) != 1 {
			return // it is another line
		}
		line := space + name + space + Digest(alicesToken) + space + rights
		if len(strings.Fields(expires)) == 1 {
			line += space + "expires=" + expires
		}
		if len(strings.Fields(limits)) == 1 {
			line += space + "limits=" + limits
		}
		if comment {
			line += "# x expires=2000-01-01"
		}
		tokens, err := ReadTokens(strings.NewReader(line))
		want, wantErr := ParseRights(rights)
		if err != nil {
			return
		}
		c, known := tokens.callers[sha256.Sum256([]byte(alicesToken))]
		if !known || len(tokens.callers) != 1 || c.Name != strings.TrimSpace(name) || wantErr != nil || strings.HasPrefix(c.Name, JWTPrefix) || c.Name == Anyone {
			t.Fatalf("%q is %+v; the rights alone are %+v, %v", line, c, want, wantErr)
		}
		for _, set := range []string{"demo", "a", "ab", "zz", "x.y"} {
			if c.Rights.Publish(set) != want.Publish(set) || c.Rights.Follow(set) != want.Follow(set) {
				t.Errorf("ReadTokens(%q): got the rights %+v, want %+v", line, c.Rights, want)
			}
		}
		if c.Rights.Operate() != want.Operate() || c.Expires.IsZero() != !strings.Contains(line, "expires="+expires) && expires != "" {
			t.Errorf("ReadTokens(%q): got %+v", line, c)
		}
		if !c.Expires.IsZero() { // an expiry is written as it is read
			if again, err := ParseTime(c.Expires.Format(time.RFC3339Nano)); err != nil || !again.Equal(c.Expires) {
				t.Errorf("ReadTokens(%q): got the expiry %v, then %v, %v", line, c.Expires, again, err)
			}
		}
	})
}
