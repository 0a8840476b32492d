package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/conformance/trial"
)

// startRshub builds rshub and starts it for checks, until the end of the test,
// which -short skips.
func startRshub(t *testing.T) *trial.Hub {
	t.Helper()
	if testing.Short() {
		t.Skip("rshub has to be built for it")
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "rshub")
	build := exec.Command("go", "build", "-o", program, "./cmd/rshub")
	build.Dir = ".."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build rshub: %v\n%s", err, out)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	ctx, stop := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, program)
	cmd.Dir = dir
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "RSHUB_") })
	cmd.Env = append(cmd.Env, "RSHUB_LISTEN="+addr, "RSHUB_OPS_LISTEN=127.0.0.1:0", "RSHUB_DATA="+filepath.Join(dir, "data"),
		"RSHUB_CALLBACK_ALLOW=127.0.0.0/8,::1/128", "RSHUB_LEASE_MIN=1s")
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		_ = cmd.Wait() // it was killed
		if said, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("rshub says:\n%s", trial.Tail(string(said)))
		}
	})
	h := &trial.Hub{URL: "http://" + addr + "/hub", Topics: "http://" + addr + "/sets/{}/changes", IsRshub: true, Patience: 30 * time.Second}
	if err := trial.Soon(h.Patience, func() error {
		resp, err := http.Get("http://" + addr + "/sets")
		if err == nil {
			if err = resp.Body.Close(); resp.StatusCode != http.StatusOK {
				err = errors.New(resp.Status)
			}
		}
		return err
	}); err != nil {
		t.Fatalf("rshub is not ready: %v", err)
	}
	return h
}
