package main

import (
	"testing"
	"time"

	"github.com/rshub/rshub/internal/testutil"
)

// TestSystemdUnit checks that the systemd unit starts rspublish watch with valid flags.
func TestSystemdUnit(t *testing.T) {
	dir := t.TempDir()
	env := map[string]string{"DIR": dir, "BASE": "https://example.org/", "ARGS": "-settle 5s", "RSPUBLISH_SET": "name"}
	args := testutil.UnitArgs(t, "../../deploy/systemd/rspublish-watch@.service", env)
	if args[0] != "watch" {
		t.Fatalf("arguments of the unit = %q, want watch first", args)
	}
	cfg, err := parseSync(true, args[1:], func(name string) string { return env[name] })
	if err != nil || cfg.files.base != "https://example.org/" || cfg.set != "name" || cfg.state != "/var/lib/rspublish/name" || cfg.files.Settle != 5*time.Second {
		t.Errorf("parseSync(%q) = %+v, %v", args, cfg, err)
	}
}
