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

// Where the chart takes a value from a Secret, a hub would read this.
var secretValues = map[string]string{"RSHUB_REDIS_URL": "redis://redis:6379", "RSHUB_NATS_URL": "nats://nats:4222"}

var (
	chartVariable = regexp.MustCompile(`(?m)^ +- name: (RSHUB_[A-Z_]+)\n +(value|valueFrom): ?(.*)$`)
	chartTokens   = regexp.MustCompile(`(?m)^  tokens: (\S+)$`)
	chartToken    = regexp.MustCompile(`(?m)^  (publish|follow|operate): (\S+)$`)
)

// The hub takes the environment and the tokens file that the chart makes.
func TestChart(t *testing.T) {
	files, err := filepath.Glob("../../e2e/chart/golden/*.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("there are only %d renderings of the chart, %v", len(files), err)
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
				t.Fatalf("the chart sets only %v", slices.Sorted(maps.Keys(variables)))
			}
			setenv(t)
			for name, value := range variables {
				t.Setenv(name, value)
			}
			if _, err := readConfig(); err != nil {
				t.Error(err)
			}
			if unknown := unknownVariables(); unknown != nil {
				t.Errorf("these mean nothing to the hub: %v", unknown)
			}
			checkChartTokens(t, hub)
			if test != "" && !strings.Contains(test, "args: [follow, -hub, ") {
				t.Error("helm test does not follow")
			}
		})
	}
}

// checkChartTokens checks that each token of a rendering has the right that it is
// named by, and no other.
func checkChartTokens(t *testing.T, manifests string) {
	file := chartTokens.FindStringSubmatch(manifests)
	if file == nil {
		return // a Secret of somebody else's
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
		t.Error("there is no token")
	}
	for _, token := range tokens {
		text, err := base64.StdEncoding.DecodeString(token[2])
		if err != nil {
			t.Fatal(err)
		}
		caller, err := known.Caller(&http.Request{Header: http.Header{"Authorization": {"Bearer " + string(text)}}})
		if err != nil || caller.Name != token[1] {
			t.Errorf("the token of %s is that of %q, %v", token[1], caller.Name, err)
			continue
		}
		rights := map[string]bool{"publish": caller.Rights.Publish("demo"), "operate": caller.Rights.Operate()}
		for right, has := range rights {
			if has != (right == token[1]) {
				t.Errorf("%s has the right %s: %v", token[1], right, has)
			}
		}
		if token[1] == "follow" && !caller.Rights.Follow("demo") {
			t.Error("follow may not follow")
		}
	}
}
