package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rshub/rshub/internal/logged"
	"github.com/rshub/rshub/internal/running"
)

// runCommand runs rshub with arguments in a directory of its own.
func runCommand(t *testing.T, ctx context.Context, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, log logged.Log
	code = run(ctx, args, &out, &log)
	return code, out.String(), log.String()
}

func TestCopyCalls(t *testing.T) {
	setenv(t)
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.Mkdir("empty", 0o700); err != nil {
		t.Fatal(err)
	}
	const nobody = "redis://user:swordfish@127.0.0.1:1"
	for _, test := range []struct {
		args string
		code int
		says string
	}{
		{"-h", 0, "--from MEMORY"},
		{"", 2, "--from MEMORY --to MEMORY"},
		{"--from a", 2, "--from MEMORY --to MEMORY"},
		{"--from a --to b c", 2, "--from MEMORY --to MEMORY"},
		{"--form a", 2, "-form"},
		{"--from a --to localhost:6379", 2, "not a URL such as redis://localhost:6379"},
		{"--from redis:6379 --to a", 2, "not a URL such as redis://localhost:6379"},
		{"--from empty --to ./empty/", 2, "the same memory"},
		{"--from " + nobody + " --to redis://127.0.0.1:1", 2, "the same memory"},
		{"--from redis://a --from-prefix a:b --to redis://a", 2, "--from-prefix is \"a:b\""},
		{"--from none --to b", 1, "no change memory in none"},
		{"--from empty --to b", 1, "no change memory in empty"},
		{"--from http://127.0.0.1:1 --to b", 1, `its scheme is "http"`},
		{"--from " + nobody + " --to b", 1, "--from redis://127.0.0.1:1 (prefix rshub): open the change memory in Redis: the change memory cannot be reached"},
	} {
		code, stdout, stderr := runCommand(t, t.Context(), append([]string{"copy"}, strings.Fields(test.args)...)...)
		if code != test.code || !strings.Contains(stdout+stderr, test.says) {
			t.Errorf("rshub copy %s ended with %d, want %d and %q:\n%s%s", test.args, code, test.code, test.says, stdout, stderr)
		}
		if strings.Contains(stdout+stderr, "swordfish") {
			t.Errorf("rshub copy %s tells the password: %s", test.args, stderr)
		}
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
		t.Errorf("there is %v now, %v", files, err)
	}
}

func TestCopyToDirectory(t *testing.T) {
	h := start(t)
	publishOne(t, h.URL)
	dir := filepath.Join(t.TempDir(), "a", "copy")
	if code, _, stderr := runCommand(t, t.Context(), "copy", "--from", h.data, "--to", dir); code != 1 || !strings.Contains(stderr, "stop the hub") {
		t.Errorf("from a memory in use it ended with %d: %s", code, stderr)
	}
	h.Stop()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if code, _, stderr := runCommand(t, ctx, "copy", "--from", h.data, "--to", dir); code != 1 || !strings.Contains(stderr, "run the same command again") {
		t.Errorf("interrupted it ended with %d: %s", code, stderr)
	}
	for _, says := range []string{"1 set, 1 change,", "nothing to do"} {
		if code, stdout, stderr := runCommand(t, t.Context(), "copy", "--from", h.data, "--to", dir); code != 0 || !strings.Contains(stdout, says) {
			t.Errorf("it ended with %d: %s%s", code, stdout, stderr)
		}
	}
	other := start(t)
	other.Stop()
	if code, _, stderr := runCommand(t, t.Context(), "copy", "--from", h.data, "--to", other.data); code != 1 || !strings.Contains(stderr, "another memory") {
		t.Errorf("over another memory it ended with %d: %s", code, stderr)
	}
	again := start(t, "RSHUB_DATA", dir)
	publishOne(t, again.URL)
	again.Stop()
	if code, _, stderr := runCommand(t, t.Context(), "copy", "--from", h.data, "--to", dir); code != 1 || !strings.Contains(stderr, "they differ now") {
		t.Errorf("to a copy that has gone on it ended with %d: %s", code, stderr)
	}
}

func publishOne(t *testing.T, url string) {
	t.Helper()
	resp, text := running.Do(t, "POST", url+"/sets/demo/changes", `{"changes":[{"loc":"https://example.org/a","change":"created"}]}`, "Content-Type", "application/json")
	if resp.StatusCode != 200 {
		t.Fatalf("a publish is answered %s: %s", resp.Status, text)
	}
}
