package main

import (
	"testing"
	"time"

	"github.com/rshub/rshub/internal/testutil"
)

// The unit of systemd starts rspublish watch with flags that there are.
func TestSystemdUnit(t *testing.T) {
	dir := t.TempDir()
	env := map[string]string{"DIR": dir, "BASE": "https://example.org/", "ARGS": "-settle 5s", "RSPUBLISH_SET": "name"}
	args := testutil.UnitArgs(t, "../../deploy/systemd/rspublish-watch@.service", env)
	if args[0] != "watch" {
		t.Fatalf("the unit starts %q", args)
	}
	cfg, err := parseSync(true, args[1:], func(name string) string { return env[name] })
	if err != nil || cfg.files.base != "https://example.org/" || cfg.set != "name" || cfg.state != "/var/lib/rspublish/name" || cfg.files.Settle != 5*time.Second {
		t.Errorf("%q is read as %+v, %v", args, cfg, err)
	}
}
