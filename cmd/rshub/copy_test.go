package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/internal/testutil"
	"github.com/rshub/rshub/internal/testutil/redistest"
	"github.com/rshub/rshub/internal/testutil/servertest"
)

// runCommandContext runs rshub with args, and returns its exit code and output.
func runCommandContext(t *testing.T, ctx context.Context, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, log testutil.Log
	code = run(ctx, args, &out, &log)
	return code, out.String(), log.String()
}

func TestCopyCommandLine(t *testing.T) {
	setenv(t)
	t.Chdir(t.TempDir())
	const unreachable = "redis://user:secret@127.0.0.1:1"
	for _, test := range []struct {
		args string
		code int
		want string
	}{
		{"-h", 0, "--from DIR"},
		{"", 2, "--from DIR --to URL"},
		{"--from a", 2, "--from DIR --to URL"},
		{"--from a --to b c", 2, "--from DIR --to URL"},
		{"--form a", 2, "-form"},
		{"--from a --to localhost:6379", 2, "want a URL such as redis://localhost:6379"},
		{"--from " + unreachable + " --to a", 2, "is not a directory"},
		{"--from none --to " + unreachable, 1, "no change memory in none"},
	} {
		t.Run(test.args, func(t *testing.T) {
			code, stdout, stderr := runCommandContext(t, t.Context(), append([]string{"copy"}, strings.Fields(test.args)...)...)
			if code != test.code || !strings.Contains(stdout+stderr, test.want) {
				t.Errorf("rshub copy %s = %d, want %d and %q:\n%s%s", test.args, code, test.code, test.want, stdout, stderr)
			}
			if strings.Contains(stdout+stderr, "secret") {
				t.Errorf("rshub copy %s prints the password: %s", test.args, stderr)
			}
		})
	}
}

// TestCopyVariables checks that copy validates the variables with which a hub would start.
func TestCopyVariables(t *testing.T) {
	t.Chdir(t.TempDir())
	setenv(t, "RSHUB_PREFIX", "a:b", "RSHUB_REDIS_TIMEOUT", "1ms", "RSHUB_REDIS_WAIT", "-1", "RSHUB_SECRET_KEYS", "k:x", "RSHUB_HEARTBEAT", "often")
	code, _, stderr := runCommandContext(t, t.Context(), "copy", "--from", "none", "--to", "redis://127.0.0.1:1")
	for _, name := range []string{"PREFIX: got", "REDIS_TIMEOUT: got", "REDIS_WAIT: got", "SECRET_KEYS: key", "HEARTBEAT: invalid value"} {
		if code != 1 || !strings.Contains(stderr, "\nRSHUB_"+name) {
			t.Errorf("rshub copy = %d, want 1 and RSHUB_%s:\n%s", code, name, stderr)
		}
	}
	if code, stdout, stderr := runCommandContext(t, t.Context(), "copy", "-h"); code != 0 || stdout != copyUsage {
		t.Errorf("rshub copy -h = %d, want 0 and the help: %s%s", code, stdout, stderr)
	}
	setenv(t, "RSHUB_REDIS_WAIT", "1") // is valid, because --to names the Redis
	if _, _, stderr := runCommandContext(t, t.Context(), "copy", "--from", "none", "--to", "redis://127.0.0.1:1"); !strings.Contains(stderr, "no change memory in none") {
		t.Errorf("stderr with RSHUB_REDIS_WAIT=1: got %s, want no error of the variable", stderr)
	}
}

func TestCopy(t *testing.T) {
	h := startHub(t)
	publishOne(t, h.URL)
	servertest.Do(t, "PUT", h.URL+"/sets/demo", `{"complete":true}`, "Content-Type", "application/json")
	copyTo := func(ctx context.Context, url string, code int, want string) {
		t.Helper()
		if got, stdout, stderr := runCommandContext(t, ctx, "copy", "--from", h.data, "--to", url); got != code || !strings.Contains(stdout+stderr, want) {
			t.Errorf("rshub copy --to %s = %d, want %d and %q: %s%s", url, got, code, want, stdout, stderr)
		}
	}
	url := "redis://" + redistest.Start(t).Addr
	copyTo(t.Context(), url, 1, "stop the hub")
	h.Stop()
	copyTo(t.Context(), "redis://user:secret@127.0.0.1:1", 1, "to redis://127.0.0.1:1: open the change memory in Redis: the change memory is unreachable")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	copyTo(ctx, url, 1, "run the same command again")
	copyTo(t.Context(), url, 0, "1 set, 1 change, 0 subscriptions in ")
	copyTo(t.Context(), url, 1, "it already has a finished copy of this memory")
	restarted := startHub(t, "RSHUB_REDIS_URL", url, "RSHUB_BASE_URL", "https://hub.example.org")
	publishOne(t, restarted.URL)
	if resp, text := servertest.Do(t, "GET", restarted.URL+"/sets/demo/resources", ""); resp.StatusCode != 200 || !strings.Contains(text, `"complete":true`) {
		t.Errorf("GET resources = %s: %s, want a complete set", resp.Status, text)
	}
}

func publishOne(t *testing.T, url string) {
	t.Helper()
	resp, text := servertest.Do(t, "POST", url+"/sets/demo/changes", `{"changes":[{"loc":"https://example.org/a","change":"created"}]}`, "Content-Type", "application/json")
	if resp.StatusCode != 200 {
		t.Fatalf("POST changes = %s: %s, want 200", resp.Status, text)
	}
}

// TestCopyKeepsPendingPing checks that a hub on the copy polls the source of an accepted ping.
func TestCopyKeepsPendingPing(t *testing.T) {
	requests := make(chan struct{}, 100)
	source := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		requests <- struct{}{}
		<-r.Context().Done()
	}))
	t.Cleanup(source.Close)
	h := startHub(t, "RSHUB_CALLBACK_ALLOW", "127.0.0.0/8")
	servertest.Do(t, "PUT", h.URL+"/sets/demo", `{"changelist":"`+source.URL+`/list.xml"}`, "Content-Type", "application/json")
	if resp, text := servertest.Do(t, "POST", h.URL+"/hub", "hub.mode=publish&hub.url="+url.QueryEscape(h.URL+"/sets/demo/changes"), "Content-Type", "application/x-www-form-urlencoded"); resp.StatusCode != 204 {
		t.Fatalf("ping = %s: %s, want 204", resp.Status, text)
	}
	<-requests
	h.Stop()
	redis := "redis://" + redistest.Start(t).Addr
	if code, _, stderr := runCommandContext(t, t.Context(), "copy", "--from", h.data, "--to", redis); code != 0 {
		t.Fatal(stderr)
	}
	for len(requests) > 0 {
		<-requests
	}
	startHub(t, "RSHUB_REDIS_URL", redis, "RSHUB_BASE_URL", "https://hub.example.org", "RSHUB_CALLBACK_ALLOW", "127.0.0.0/8")
	select {
	case <-requests:
	case <-time.After(30 * time.Second):
		t.Error("the restarted hub does not poll the source")
	}
}
