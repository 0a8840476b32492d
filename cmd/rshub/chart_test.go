package main

import (
	"encoding/base64"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rshub/rshub/internal/access"
)

// secretValues has values for the variables that the chart reads from a Secret.
var secretValues = map[string]string{"RSHUB_REDIS_URL": "redis://redis:6379", "RSHUB_NATS_URL": "nats://nats:4222"}

var (
	chartVariable = regexp.MustCompile(`(?m)^ +- name: (RSHUB_[A-Z_]+)\n +(value|valueFrom): ?(.*)$`)
	chartTokens   = regexp.MustCompile(`(?m)^  tokens: (\S+)$`)
	chartToken    = regexp.MustCompile(`(?m)^  (publish|follow|operate): (\S+)$`)
)

// TestChart checks that the hub accepts the environment and the tokens file of the chart.
func TestChart(t *testing.T) {
	files, err := filepath.Glob("../../e2e/chart/golden/*.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("found %d golden manifests of the chart, want at least 3 (%v)", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			hub, test, _ := strings.Cut(readFile(t, file), "helm.sh/hook: test")
			variables := map[string]string{}
			for _, v := range chartVariable.FindAllStringSubmatch(hub, -1) {
				variables[v[1]] = strings.Trim(v[3], `"`)
				if v[2] == "valueFrom" {
					variables[v[1]] = secretValues[v[1]]
				}
			}
			if len(variables) < 5 {
				t.Fatalf("chart sets %v, want at least 5 variables", slices.Sorted(maps.Keys(variables)))
			}
			setenv(t)
			for name, value := range variables {
				t.Setenv(name, value)
			}
			if _, err := readConfig(); err != nil {
				t.Error(err)
			}
			if unknown := unknownVariables(); unknown != nil {
				t.Errorf("unknownVariables() = %v, want none", unknown)
			}
			checkChartTokens(t, hub)
			if test != "" && !strings.Contains(test, "args: [follow, -hub, ") {
				t.Error("helm test does not run rshub follow")
			}
		})
	}
}

// checkChartTokens checks that each token in manifests has exactly the right after which it is
// named.
func checkChartTokens(t *testing.T, manifests string) {
	file := chartTokens.FindStringSubmatch(manifests)
	if file == nil {
		return // the tokens are in an existing Secret
	}
	lines, err := base64.StdEncoding.DecodeString(file[1])
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(path, lines, 0o600); err != nil {
		t.Fatal(err)
	}
	known, err := access.OpenTokensFile(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	tokens := chartToken.FindAllStringSubmatch(manifests, -1)
	if len(tokens) == 0 {
		t.Error("manifests have no token")
	}
	for _, token := range tokens {
		text, err := base64.StdEncoding.DecodeString(token[2])
		if err != nil {
			t.Fatal(err)
		}
		caller, err := known.Caller(&http.Request{Header: http.Header{"Authorization": {"Bearer " + string(text)}}})
		if err != nil || caller.Name != token[1] {
			t.Errorf("Caller(token %s) = %q, %v, want that name", token[1], caller.Name, err)
			continue
		}
		rights := map[string]bool{"publish": caller.Rights.Publish("demo"), "operate": caller.Rights.Operate()}
		for right, has := range rights {
			if has != (right == token[1]) {
				t.Errorf("token %s has right %s = %v, want %v", token[1], right, has, !has)
			}
		}
		if token[1] == "follow" && !caller.Rights.Follow("demo") {
			t.Error("token follow lacks the right to follow")
		}
	}
}
