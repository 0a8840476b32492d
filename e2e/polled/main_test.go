// Package polled tests sources that must be polled: their lists are stale, wrongly dated,
// truncated and moved, and they are numerous.
package polled

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

func TestMain(m *testing.M) {
	// rspublish relay retries a failed request after 5 s, 20 s and 80 s, and rsmirror a failed
	// content after 10 s, 20 s and so on.
	hubtest.Timeout = 4 * time.Minute
	hubtest.Main(m)
}

// size returns usual, or whole with RSHUB_E2E_FULL.
func size[T any](usual, whole T) T {
	if os.Getenv("RSHUB_E2E_FULL") != "" {
		return whole
	}
	return usual
}

// rng returns the source of random choices of one part of a test. Each part has its own, because
// the parts run concurrently.
func rng(seed, part uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, part)) }

// A program is a process that is killed and restarted.
type program struct {
	name string
	*hubtest.Process
	start func() *hubtest.Process
	kills int
}

// startProgram starts a program.
func startProgram(t testing.TB, name, file string, args ...string) *program {
	start := func() *hubtest.Process { return hubtest.Start(t, nil, nil, file, args...) }
	return &program{name: name, start: start, Process: start()}
}

// ensureRunning starts the program if it is not running.
func (p *program) ensureRunning() {
	if p.Exited() {
		p.Process = p.start()
	}
}

// kill kills the program, and fails the test if it has exited before.
func (p *program) kill(t testing.TB) {
	t.Helper()
	p.wantRunning(t)
	p.Kill()
	p.kills++
}

// wantRunning fails the test if the program has exited.
func (p *program) wantRunning(t testing.TB) {
	t.Helper()
	if p.Exited() {
		t.Fatalf("%s exited with %d, want it running: %s%s", p.name, p.Cmd.ProcessState.ExitCode(), p.Stdout, p.Stderr)
	}
}

// files returns the contents of the files of a mirror by name.
func files(dir string) (map[string]string, error) {
	all := map[string]string{}
	err := hubtest.EachFile(dir, func(name string, content []byte) error {
		all[name] = string(content)
		return nil
	})
	return all, err
}

// diff returns an error that describes how two maps differ, or nil.
func diff(what string, got, want map[string]string) error {
	var all []string
	for name, text := range want {
		if had, ok := got[name]; had != text {
			all = append(all, fmt.Sprintf("%s: got %.40q (exists: %v), want %.40q", name, had, ok, text))
		}
	}
	for name, text := range got {
		if _, ok := want[name]; !ok {
			all = append(all, fmt.Sprintf("%s: got %.40q, want none", name, text))
		}
	}
	if len(all) == 0 {
		return nil
	}
	return fmt.Errorf("%s: %d differences: %s", what, len(all), strings.Join(all[:min(len(all), 5)], "; "))
}
