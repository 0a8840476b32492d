// Package hubtest starts the built programs and their environment for tests: hubs, Redis,
// NATS, followers, publishers and callbacks. Everything stops with its test.
package hubtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/rshub/rshub/e2e/internal/trial"
)

// Rshub, Rspublish and Rsmirror are the built programs.
var Rshub, Rspublish, Rsmirror string

// Timeout is the time within which a condition must become true. Only a failing test waits that
// long.
var Timeout = 30 * time.Second

// Main is the TestMain of every package. It builds the programs and runs the tests.
func Main(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	race := os.Getenv("RSHUB_E2E_RACE") != ""
	if race {
		Timeout *= 4
	}
	dir, err := os.MkdirTemp("", "rshub-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	cmd := exec.Command("../../tools/scripts/build", dir)
	if race {
		cmd = exec.Command("go", "build", "-race", "-o", dir+string(filepath.Separator), "./cmd/rshub", "./cmd/rspublish", "./cmd/rsmirror")
		cmd.Dir = "../.."
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "e2e: build the programs: %v\n%s", err, out)
		return 1
	}
	suffix := ""
	if runtime.GOOS == "windows" {
		suffix = ".exe"
	}
	Rshub, Rspublish, Rsmirror = filepath.Join(dir, "rshub"+suffix), filepath.Join(dir, "rspublish"+suffix), filepath.Join(dir, "rsmirror"+suffix)
	return m.Run()
}

// Until waits until cond returns nil, and fails the test with its last error after Timeout.
func Until(t testing.TB, what string, cond func() error) {
	t.Helper()
	if err := trial.Poll(Timeout, cond); err != nil {
		t.Fatalf("timeout after %v until %s: %v", Timeout, what, err)
	}
}
