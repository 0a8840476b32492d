// Package polled tests sources that can only be polled: their lists are stale, dated wrongly,
// broken off and moved, and there are many of them.
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
	// Relay asks again 5 s, 20 s and 80 s after a request broke, and rsmirror gets a content
	// again after 10 s, 20 s and so on.
	hubtest.Timeout = 4 * time.Minute
	hubtest.Main(m)
}

// size returns what a test does much of: less by default than with RSHUB_E2E_FULL.
func size[T any](usual, whole T) T {
	if os.Getenv("RSHUB_E2E_FULL") != "" {
		return whole
	}
	return usual
}

// of returns the choices of one part of a test. Each part has a source of its own, because
// the parts go on at the same time.
func of(seed, part uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, part)) }

// A player is a program that is killed and started again.
type player struct {
	name string
	*hubtest.Process
	start func() *hubtest.Process
	kills int
}

// play starts a program.
func play(t testing.TB, name, program string, args ...string) *player {
	start := func() *hubtest.Process { return hubtest.Start(t, nil, nil, program, args...) }
	return &player{name: name, start: start, Process: start()}
}

// up starts a player that does not run.
func (p *player) up() {
	if p.Exited() {
		p.Process = p.start()
	}
}

// down kills a player that has to run until then.
func (p *player) down(t testing.TB) {
	t.Helper()
	p.runs(t)
	p.Kill()
	p.kills++
}

// runs checks that a player has not ended by itself.
func (p *player) runs(t testing.TB) {
	t.Helper()
	if p.Exited() {
		t.Fatalf("%s ended by itself with %d: %s%s", p.name, p.Cmd.ProcessState.ExitCode(), p.Stdout, p.Stderr)
	}
}

// files returns the contents of the files of a mirror, by name.
func files(dir string) (map[string]string, error) {
	all := map[string]string{}
	err := hubtest.EachFile(dir, func(name string, content []byte) error {
		all[name] = string(content)
		return nil
	})
	return all, err
}

// same returns how two maps differ; nil: they do not.
func same(what string, got, want map[string]string) error {
	var all []string
	for name, text := range want {
		if had, ok := got[name]; had != text {
			all = append(all, fmt.Sprintf("%s is %.40q (there: %v), not %.40q", name, had, ok, text))
		}
	}
	for name, text := range got {
		if _, ok := want[name]; !ok {
			all = append(all, fmt.Sprintf("%s ought not to be there, and is %.40q", name, text))
		}
	}
	if len(all) == 0 {
		return nil
	}
	return fmt.Errorf("%s: %d differences: %s", what, len(all), strings.Join(all[:min(len(all), 5)], "; "))
}
