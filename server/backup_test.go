package server

import (
	"crypto/rand"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rshub/rshub/internal/servertest"
	"github.com/rshub/rshub/internal/untiltest"
)

// A backup of a hub with keys has no secret in clear, also of those that were kept in clear
// before there were keys.
func TestBackupHasNoSecret(t *testing.T) {
	const base = "http://hub.example.org"
	c, secret, data := newCallee(t), "secret"+rand.Text()+rand.Text(), t.TempDir()
	begin := func(keys string) *started {
		t.Helper()
		return start(t, Config{Data: data, BaseURL: base, SecretKeys: keys, CallbackAllow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	}
	has := func(h *started, line string) bool {
		_, body := servertest.Do(t, "GET", h.Ops+"/metrics", "")
		return strings.Contains(body, "\n"+line+"\n")
	}
	backup := func(h *started) string {
		t.Helper()
		resp, body := servertest.Do(t, "POST", h.Ops+"/backup", "")
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("a backup is answered %d %s", resp.StatusCode, body)
		}
		return body
	}
	h := begin("")
	h.Publish("a")
	form := url.Values{"hub.mode": {"subscribe"}, "hub.topic": {base + "/sets/a/changes"}, "hub.callback": {c.URL}, "hub.secret": {secret}}
	if resp, body := servertest.Do(t, "POST", h.URL+"/hub", form.Encode(), "Content-Type", "application/x-www-form-urlencoded"); resp.StatusCode != http.StatusAccepted {
		t.Fatalf("subscribing is answered %d: %s", resp.StatusCode, body)
	}
	untiltest.Done(t, "there is a subscription", func() bool { return has(h, "rshub_callback_subscriptions 1") })
	if !strings.Contains(backup(h), secret) {
		t.Fatal("without keys there is no secret to be found in a backup")
	}
	h.Stop()
	h = begin("A:" + strings.Repeat("A", 43) + "=")
	untiltest.Done(t, "the secret is encrypted", func() bool {
		return has(h, "rshub_callback_subscriptions 1") && has(h, "rshub_callback_stale_secrets 0")
	})
	if strings.Contains(backup(h), secret) {
		t.Error("with keys a backup still has the secret in clear")
	}
}

// What a hub that was killed during a backup left is removed, and nothing else:
// least of all a backup that somebody keeps there.
func TestOldBackupsAreRemoved(t *testing.T) {
	data := t.TempDir()
	left := filepath.Join(data, backupPrefix+"123", "changes")
	kept := filepath.Join(data, "backup-2026-11-21", "changes")
	for _, dir := range []string{left, kept} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	start(t, Config{Data: data})
	if _, err := os.Stat(kept); err != nil {
		t.Errorf("a backup is gone: %v", err)
	}
	if _, err := os.Stat(filepath.Dir(left)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
}
