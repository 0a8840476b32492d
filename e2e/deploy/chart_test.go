package deploy

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

var chartCommand = regexp.MustCompile(`(?m)^      command: \[/(\w+)\]\n      args: \[(.*)\]$`)

// TestChart runs the commands of helm test against a hub with the tokens of the chart: they publish
// a change, and then follow it.
func TestChart(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../chart/golden/default.yaml")
	if err != nil {
		t.Fatal(err)
	}
	manifests := string(text)
	secret := func(key string) string {
		t.Helper()
		text, err := base64.StdEncoding.DecodeString(regexp.MustCompile(`(?m)^  ` + key + `: (\S+)$`).FindStringSubmatch(manifests)[1])
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	tokens := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(tokens, []byte(secret("tokens")), 0o600); err != nil {
		t.Fatal(err)
	}
	h := hubtest.StartHub(t, "RSHUB_TOKENS_FILE="+tokens)
	commands := chartCommand.FindAllStringSubmatch(manifests, -1)
	if len(commands) != 2 {
		t.Fatalf("got %d commands of helm test, want 2", len(commands))
	}
	for _, c := range commands {
		args := strings.Split(strings.ReplaceAll(c[2], `"`, ""), ", ")
		args[slices.Index(args, "-hub")+1] = h.URL
		name, env := hubtest.Rshub, "RSHUB_TOKEN="+secret("follow")
		if c[1] == "rspublish" {
			name, env = hubtest.Rspublish, "RSPUBLISH_TOKEN="+secret("publish")
		}
		code, stdout, stderr := hubtest.Run(t, []string{env}, nil, name, args...)
		if code != 0 {
			t.Fatalf("%s %v exited with %d: %s", c[1], args, code, stderr)
		}
		if c[1] == "rshub" && strings.Count(stdout, "https://rshub.invalid/rshub/1/") != 1 {
			t.Errorf("output of rshub follow = %s, want the published change", stdout)
		}
	}
}
