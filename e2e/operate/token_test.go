package operate

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// TestTokens gives out tokens, and tries with each what it is for, and what it is not for.
func TestTokens(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tokens")
	tokens := map[string]string{
		"stranger":  "rshub_UNKNOWN",
		"publisher": hubtest.NewToken(t, file, "publisher", "publish:*"),
		"follower":  hubtest.NewToken(t, file, "follower", "follow:closed"),
		"operator":  hubtest.NewToken(t, file, "operator", "operate"),
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for name, token := range tokens {
		if strings.Contains(string(text), token) {
			t.Errorf("the file has the token of %s itself", name)
		}
	}
	if err := os.WriteFile(file, append(text, "anyone - follow:open\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	h := hubtest.StartHub(t, "RSHUB_TOKENS_FILE="+file)
	bearer := func(who string) []string {
		if tokens[who] == "" {
			return nil
		}
		return []string{"Authorization: Bearer " + tokens[who]}
	}
	for _, set := range []string{"open", "closed"} {
		hubtest.Publish(t, h, set, hubtest.Changes("x", 3), bearer("publisher")...)
	}
	const ok, unauthorized, forbidden = http.StatusOK, http.StatusUnauthorized, http.StatusForbidden
	for _, test := range []struct {
		method, url string
		want        map[string]int
	}{
		{"POST", h.Topic("open"), map[string]int{"": unauthorized, "stranger": unauthorized, "follower": forbidden, "operator": forbidden, "publisher": ok}},
		{"GET", h.Topic("closed"), map[string]int{"": unauthorized, "stranger": unauthorized, "follower": ok, "operator": forbidden, "publisher": forbidden}},
		{"GET", h.Topic("open"), map[string]int{"": ok, "stranger": unauthorized, "follower": ok}},
		{"GET", h.Ops + "/backup", map[string]int{"": unauthorized, "follower": forbidden, "operator": ok}},
		{"GET", h.Ops + "/readyz", map[string]int{"": ok}},
	} {
		for who, want := range test.want {
			hubtest.Must(t, want, test.method, test.url, hubtest.Change("y"), append(bearer(who), hubtest.AsNDJSON)...)
		}
	}
	for _, way := range hubtest.AllWays {
		hubtest.Follow(t, h, way, "closed", "start", bearer("follower")...).Has(t, 3)
		hubtest.Follow(t, h, way, "open", "start").Has(t, 4)
	}

	// The tools take a token too.
	run := func(code int, says, variable, program string, args ...string) {
		t.Helper()
		env := []string{variable, "RSHUB_OPS_LISTEN=" + strings.TrimPrefix(h.Ops, "http://")}
		if got, _, stderr := hubtest.Run(t, env, nil, program, args...); got != code || !strings.Contains(stderr, says) {
			t.Errorf("%s %q ended with %d: %s", program, args, got, stderr)
		}
	}
	backup := []string{"backup", filepath.Join(t.TempDir(), "b")}
	run(1, "401", "RSHUB_TOKEN=", hubtest.Rshub, backup...)
	run(0, "", "RSHUB_TOKEN="+tokens["operator"], hubtest.Rshub, backup...)
	publish := []string{"-hub", h.URL, "-set", "open", "-updated", "https://example.org/1"}
	run(1, "403", "RSPUBLISH_TOKEN="+tokens["follower"], hubtest.Rspublish, publish...)
	run(0, "", "RSPUBLISH_TOKEN="+tokens["publisher"], hubtest.Rspublish, publish...)
	if s := h.Stderr.String(); strings.Contains(s, "rshub_") {
		t.Errorf("the log has a token: %s", s)
	}
}
