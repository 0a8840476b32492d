package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

// The built programs.
var rshubBin, rspublishBin string

// patience is how long a condition may take to come true. Only a failing test
// waits that long.
var patience = 30 * time.Second

func TestMain(m *testing.M) { os.Exit(build(m)) }

// build builds the programs into a directory that is removed after the tests.
func build(m *testing.M) int {
	dir, err := os.MkdirTemp("", "rshub-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	cmd := exec.Command("../scripts/build", dir) // what is tested is what is released
	if os.Getenv("RSHUB_E2E_RACE") != "" {
		cmd = exec.Command("go", "build", "-race", "-o", dir+string(filepath.Separator), "./cmd/rshub", "./cmd/rspublish")
		cmd.Dir = ".."
		patience *= 4
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "e2e: build the programs: %v\n%s", err, out)
		return 1
	}
	suffix := ""
	if runtime.GOOS == "windows" {
		suffix = ".exe"
	}
	rshubBin, rspublishBin = filepath.Join(dir, "rshub"+suffix), filepath.Join(dir, "rspublish"+suffix)
	return m.Run()
}

// until waits until cond returns nil, and fails the test with its last error
// when that takes too long.
func until(t testing.TB, what string, cond func() error) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		err := cond()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("waited %v in vain until %s: %v", patience, what, err)
		}
	}
}
