package operate

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// TestTokens tries everything with every token.
func TestTokens(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tokens")
	tokens := map[string]string{
		"nobody":    "",
		"stranger":  "rshub_UNKNOWN",
		"publisher": hubtest.NewToken(t, file, "publisher", "publish:a"),
		"follower":  hubtest.NewToken(t, file, "follower", "follow:a,follow:b*"),
		"both":      hubtest.NewToken(t, file, "both", "publish:*,follow:*"),
		"operator":  hubtest.NewToken(t, file, "operator", "operate"),
	}
	if code, _, stderr := hubtest.Run(t, nil, nil, hubtest.Rshub, "token", "new", "-name", "both", "-rights", "operate", "-file", file); code != 1 || !strings.Contains(stderr, "twice") {
		t.Errorf("a second token of the same name: %d, %s", code, stderr)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for name, token := range tokens {
		if token != "" && strings.Contains(string(text), token) {
			t.Errorf("the file has the token of %s itself", name)
		}
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v: %v", info.Mode(), err)
	}

	h := hubtest.StartHub(t, "RSHUB_TOKENS_FILE="+file)
	const ok, unauthorized, forbidden = http.StatusOK, http.StatusUnauthorized, http.StatusForbidden
	bearer := func(who string) []string {
		if tokens[who] == "" {
			return nil
		}
		return []string{"Authorization: Bearer " + tokens[who]}
	}
	for _, set := range []string{"a", "b1", "c"} {
		hubtest.Publish(t, h, set, hubtest.Changes("x", 3), bearer("both")...)
	}
	everybody := []string{"nobody", "stranger", "publisher", "follower", "both", "operator"}
	for _, test := range []struct {
		what, method, path, body string
		want                     [6]int // of everybody
	}{
		{"publish to a", "POST", "/sets/a/changes", string(hubtest.Change("y")), [6]int{unauthorized, unauthorized, ok, forbidden, ok, forbidden}},
		{"publish to c", "POST", "/sets/c/changes", string(hubtest.Change("y")), [6]int{unauthorized, unauthorized, forbidden, forbidden, ok, forbidden}},
		{"publish to a new set", "POST", "/sets/new/changes", string(hubtest.Change("y")), [6]int{unauthorized, unauthorized, forbidden, forbidden, ok, forbidden}},
		{"describe a", "PUT", "/sets/a", `{"title":"A"}`, [6]int{unauthorized, unauthorized, ok, forbidden, ok, forbidden}},
		{"follow a", "GET", "/sets/a/changes?since=start", "", [6]int{unauthorized, unauthorized, forbidden, ok, ok, forbidden}},
		{"latest of b1", "GET", "/sets/b1/changes", "", [6]int{unauthorized, unauthorized, forbidden, ok, ok, forbidden}},
		{"follow c", "GET", "/sets/c/changes?since=start", "", [6]int{unauthorized, unauthorized, forbidden, forbidden, ok, forbidden}},
		{"state of c", "GET", "/sets/c", "", [6]int{unauthorized, unauthorized, forbidden, forbidden, ok, forbidden}},
		{"Change List of c", "GET", "/sets/c/changelist.xml", "", [6]int{unauthorized, unauthorized, forbidden, forbidden, ok, forbidden}},
		{"description", "GET", "/.well-known/resourcesync", "", [6]int{ok, unauthorized, ok, ok, ok, ok}},
		{"delete c", "DELETE", "/sets/c", "", [6]int{unauthorized, unauthorized, forbidden, forbidden, forbidden, http.StatusNoContent}},
	} {
		for i, who := range everybody {
			a, err := hubtest.Request(test.method, h.URL+test.path, strings.NewReader(test.body), append(bearer(who), "Content-Type: application/x-ndjson")...)
			if err != nil {
				t.Fatal(err)
			}
			if a.Status != test.want[i] {
				t.Errorf("%s by %s: %d, not %d: %s", test.what, who, a.Status, test.want[i], a.Body)
			}
			if a.Status >= 400 {
				if p, err := hubtest.ProblemOf(a); err != nil {
					t.Errorf("%s by %s: %+v, %v", test.what, who, p, err)
				}
			}
			if challenge := a.Header.Get("WWW-Authenticate"); (challenge != "") != (a.Status == unauthorized) {
				t.Errorf("%s by %s: %d with WWW-Authenticate %q", test.what, who, a.Status, challenge)
			}
		}
	}
	for i, want := range []int{unauthorized, unauthorized, forbidden, forbidden, forbidden, ok} {
		for _, path := range []string{"/debug/pprof/", "/backup"} {
			a := hubtest.Must(t, want, http.MethodGet, h.Ops+path, nil, bearer(everybody[i])...)
			if want == ok && len(a.Body) == 0 {
				t.Errorf("%s is empty", path)
			}
		}
	}
	for _, path := range []string{"/healthz", "/readyz"} { // for who has no token
		hubtest.Must(t, ok, http.MethodGet, h.Ops+path, nil)
	}
	// Everybody sees the sets that are for them.
	for who, want := range map[string]string{"nobody": "[]", "follower": "[a b1]", "both": "[a b1 new]", "operator": "[]"} {
		v := hubtest.Get[struct{ Sets []struct{ Set string } }](t, h.URL+"/sets", bearer(who)...)
		sets := []string{}
		for _, s := range v.Sets {
			sets = append(sets, s.Set)
		}
		if got := fmt.Sprint(sets); got != want {
			t.Errorf("%s sees %s, not %s", who, got, want)
		}
	}
	for _, way := range hubtest.AllWays {
		hubtest.Follow(t, h, way, "a", "start", bearer("follower")...).Has(t, 5)
	}

	// The tools take a token too.
	env := []string{"RSHUB_OPS_LISTEN=" + strings.TrimPrefix(h.Ops, "http://")}
	if code, _, stderr := hubtest.Run(t, env, nil, hubtest.Rshub, "backup", filepath.Join(t.TempDir(), "b")); code != 1 || !strings.Contains(stderr, "401") {
		t.Errorf("a backup without a token ended with %d: %s", code, stderr)
	}
	if code, _, stderr := hubtest.Run(t, append(env, "RSHUB_TOKEN="+tokens["operator"]), nil, hubtest.Rshub, "backup", filepath.Join(t.TempDir(), "b")); code != 0 {
		t.Errorf("a backup with a token ended with %d: %s", code, stderr)
	}
	for _, test := range []struct {
		token string
		code  int
		says  string
	}{{"", 1, "401"}, {tokens["follower"], 1, "403"}, {tokens["publisher"], 0, ""}} {
		code, _, stderr := hubtest.Run(t, []string{"RSPUBLISH_TOKEN=" + test.token}, nil, hubtest.Rspublish, "-hub", h.URL, "-set", "a", "-updated", "https://example.org/1")
		if code != test.code || !strings.Contains(stderr, test.says) {
			t.Errorf("rspublish ended with %d: %s", code, stderr)
		}
	}
	if s := h.Stderr.String(); strings.Contains(s, "rshub_") {
		t.Errorf("the log has a token: %s", s)
	}
}

// TestAnyone has a line for those without a token.
func TestAnyone(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tokens")
	token := hubtest.NewToken(t, file, "source", "publish:*")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, append(text, "anyone - follow:open\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	h := hubtest.NewHub(t, "RSHUB_TOKENS_FILE="+file)
	h.Start(t)
	for _, set := range []string{"open", "closed"} {
		hubtest.Publish(t, h, set, hubtest.Changes("x", 3), "Authorization: Bearer "+token)
	}
	for _, way := range hubtest.AllWays {
		hubtest.Follow(t, h, way, "open", "start").Has(t, 3)
	}
	hubtest.Must(t, http.StatusUnauthorized, http.MethodGet, h.Topic("closed")+"?since=start", nil)
	hubtest.Must(t, http.StatusUnauthorized, http.MethodPost, h.Topic("open"), hubtest.Change("y"), "Content-Type: application/x-ndjson")
}
