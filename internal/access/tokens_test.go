package access

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rshub/rshub/feed"
)

// Two tokens for tests. tokensFile replaces ALICE and BOB with their digests.
const (
	alicesToken = "rshub_ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	bobsToken   = "rshub_ZYXWVUTSRQPONMLKJIHGFEDCBA"
)

func tokensFile(lines ...string) string {
	return strings.NewReplacer("ALICE", Digest(alicesToken), "BOB", Digest(bobsToken)).Replace(strings.Join(lines, "\n"))
}

// openTokens returns the TokensFile of a file with the given text.
func openTokens(t testing.TB, text string) *TokensFile {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := OpenTokensFile(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestNewToken(t *testing.T) {
	token, digest := NewToken()
	other, _ := NewToken()
	if token == other || !strings.HasPrefix(token, "rshub_") || len(token) < 32 {
		t.Errorf("NewToken() = %s, %s, want two different tokens with the prefix rshub_", token, other)
	}
	if digest != Digest(token) || strings.Contains(digest, token) || len(digest) != len("sha256:")+64 {
		t.Errorf("NewToken(): got the digest %s, want the digest of the token", digest)
	}
}

func TestCaller(t *testing.T) {
	const file = "# our sources\n\nalice ALICE publish:demo,follow:*   # until 2027\n bob\tBOB operate follow:b \n"
	for _, test := range []struct {
		name, file, header       string
		caller                   string
		publish, follow, operate bool   // of the set demo
		challenge                string // challenge of a 401; empty if there is no error
	}{
		{"alice", file, "Bearer " + alicesToken, "alice", true, true, false, ""},
		{"bob", file, "Bearer " + bobsToken, "bob", false, false, true, ""},
		{"scheme in small letters", file, "bearer  " + alicesToken + " ", "alice", true, true, false, ""},
		{"no token", file, "", "", false, false, false, ""},
		{"anyone", file + "anyone - follow:demo", "", "", false, true, false, ""},
		{"anyone's rights are bob's too", file + "anyone - follow:demo", "Bearer " + bobsToken, "bob", false, true, true, ""},
		{"a digest in capitals", "alice sha256:" + strings.ToUpper(Digest(alicesToken)[len("sha256:"):]) + " publish:*", "Bearer " + alicesToken, "alice", true, false, false, ""},
		{"an unknown token", file, "Bearer rshub_secret", "", false, false, false, "invalid_token"},
		{"an unknown token where none is needed", file + "anyone - follow:*", "Bearer rshub_secret", "", false, false, false, "invalid_token"},
		{"the digest instead of the token", file, "Bearer " + Digest(alicesToken), "", false, false, false, "invalid_token"},
		{"no scheme", file, alicesToken, "", false, false, false, "invalid_request"},
		{"another scheme", file, "Basic rshub_secret", "", false, false, false, "invalid_request"},
		{"an empty file", "", "Bearer rshub_secret", "", false, false, false, "invalid_token"},
	} {
		t.Run(test.name, func(t *testing.T) {
			tokens := openTokens(t, tokensFile(test.file))
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			if test.header != "" {
				r.Header.Set("Authorization", test.header)
			}
			c, err := tokens.Caller(r)
			if test.challenge == "" {
				if err != nil || c.Name != test.caller || c.Rights.Publish("demo") != test.publish || c.Rights.Follow("demo") != test.follow || c.Rights.Operate() != test.operate {
					t.Errorf("Caller() = %+v, %v, want %q with publish %t, follow %t, operate %t", c, err, test.caller, test.publish, test.follow, test.operate)
				}
				return
			}
			p, ok := errors.AsType[*feed.Problem](err)
			if !ok || p.Status != http.StatusUnauthorized || !strings.Contains(http.Header(p.Header).Get("WWW-Authenticate"), test.challenge) {
				t.Fatalf("Caller() = %v (%+v), want 401 with %s", err, p, test.challenge)
			}
			if strings.Contains(err.Error()+http.Header(p.Header).Get("WWW-Authenticate"), "secret") {
				t.Errorf("got an error with the token: %v", err)
			}
			if c.Rights.Follow("demo") {
				t.Error("Caller() of an invalid token: got rights, want none")
			}
		})
	}
}

// A caller gets the rights of Anyone in addition for one request only, invisible to concurrent
// and later requests.
func TestAnyonesRightsAreCopied(t *testing.T) {
	tokens := openTokens(t, tokensFile("anyone - follow:a", "alice ALICE follow:b,follow:c,follow:d", "bob BOB follow:e"))
	var wg sync.WaitGroup
	for range 4 {
		for _, test := range []struct{ token, has string }{{alicesToken, "abcd"}, {bobsToken, "ae"}} {
			wg.Go(func() {
				r := httptest.NewRequest(http.MethodGet, "/", nil)
				r.Header.Set("Authorization", "Bearer "+test.token)
				c, err := tokens.Caller(r)
				if err != nil {
					t.Error(err)
				}
				for _, set := range "abcde" {
					if got := c.Rights.Follow(string(set)); got != strings.ContainsRune(test.has, set) {
						t.Errorf("%s may follow %c: %v", c.Name, set, got)
					}
				}
			})
		}
	}
	wg.Wait()
}

func TestReadTokensInvalid(t *testing.T) {
	const secret = "rshub_THESECRET"
	for _, test := range []struct{ name, file, want string }{
		{"two fields", "alice ALICE", "line 1: too few fields; want NAME sha256:HEX RIGHTS"},
		{"the line is counted", "# a\n\nalice ALICE publish:*\nbob", "line 4: "},
		{"a token for a digest", "alice " + secret + " publish:*", `line 1: invalid digest of the token of "alice"; want sha256:`},
		{"a token for a name", secret + " alice publish:*", "line 1: token in place of a name"},
		{"a token for a right", "alice ALICE " + secret, "line 1: invalid right (a token, which is not shown)"},
		{"a token among the rights", "alice ALICE publish:* publish:" + secret, "line 1: invalid right (a token"},
		{"another digest", "alice md5:1234 publish:*", "line 1: invalid digest of the token of"},
		{"half a digest", "alice " + Digest(secret)[:60] + " publish:*", "line 1: invalid digest of the token of"},
		{"no hex", "alice sha256:" + strings.Repeat("x", 64) + " publish:*", "line 1: invalid digest of the token of"},
		{"a name twice", "alice ALICE publish:*\nalice BOB publish:*", `line 2: duplicate name "alice"`},
		{"a token twice", "alice ALICE publish:*\nbob ALICE publish:*", `line 2: "bob" has the same token as "alice"`},
		{"anyone twice", "anyone - follow:*\nanyone - publish:*", "line 2: "},
		{"anyone with a token", "anyone ALICE follow:*", "line 1: anyone has no token"},
		{"a bad right", "alice ALICE publish:demo,reed:demo", `line 1: invalid right "reed:demo"`},
		{"no right", "alice ALICE ,", "line 1: no right"},
		{"anyone's bad right", "anyone - x", `line 1: invalid right "x"`},
		{"a long line", "alice ALICE publish:*\n#" + strings.Repeat("x", 1<<17), "line 2: "},
	} {
		t.Run(test.name, func(t *testing.T) {
			tokens, err := ReadTokens(strings.NewReader(tokensFile(test.file)))
			if err == nil || tokens != nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("ReadTokens() = %v, want an error with %q", err, test.want)
			}
			if strings.Contains(err.Error(), secret) {
				t.Errorf("the token is in the error: %v", err)
			}
		})
	}
}

func TestOpenTokensFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	if _, err := OpenTokensFile(path, slog.New(slog.DiscardHandler)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if err := os.WriteFile(path, []byte("alice\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenTokensFile(path, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), path+": line 1") {
		t.Errorf("a bad file: %v", err)
	}
}

// No file makes ReadTokens panic. An error names a line, and never shows a token.
func FuzzReadTokens(f *testing.F) {
	for _, s := range []string{"", "alice ALICE publish:*", "anyone - follow:a*\n# x", "alice\nBOB", "a ALICE operate\nb ALICE operate", "rshub_x - ,", "\x00\xff \xff \xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		tokens, err := ReadTokens(strings.NewReader(tokensFile(s)))
		if err == nil {
			if c, ok := tokens.CallerByName("", ""); !ok || c.Name != "" {
				t.Errorf("without a token comes %+v, %v", c, ok)
			}
			return
		}
		if tokens != nil || !strings.HasPrefix(err.Error(), "line ") {
			t.Errorf("the error is %v", err)
		}
		if strings.Contains(err.Error(), "rshub_") {
			t.Errorf("a token is in %v", err)
		}
	})
}

// Objects that outlive a token look up their caller by name.
func TestCallerByName(t *testing.T) {
	expired := time.Now().Add(-time.Minute).UTC().Format(time.RFC3339)
	later := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	tokens := openTokens(t, "anyone - follow:open\n"+
		"alice "+Digest("a")+" follow:a\nbob "+Digest("b")+" follow:a expires="+expired+"\ncarol "+Digest("c")+" publish:c expires="+later.Format(time.RFC3339))
	for name, want := range map[string]struct {
		ok, a, open bool
		expires     time.Time
	}{
		"":        {true, false, true, time.Time{}},
		"alice":   {true, true, true, time.Time{}},
		"carol":   {true, false, true, later},
		"bob":     {},
		"anyone":  {},
		"dave":    {},
		"jwt:eve": {},
	} {
		c, ok := tokens.CallerByName(name, "")
		if ok != want.ok || c.Rights.Follow("a") != want.a || c.Rights.Follow("open") != want.open || !c.Expires.Equal(want.expires) || ok && c.Name != name {
			t.Errorf("CallerByName(%q) = %+v, %v, want %+v", name, c, ok, want)
		}
	}
}
