package ends

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// A player is a program that is killed and started again.
type player struct {
	name  string
	start func() *hubtest.Process
	*hubtest.Process
	kills int
}

// A cast is all players of a test.
type cast []*player

// play starts a program, from now on a player.
func (c *cast) play(name string, start func() *hubtest.Process) *player {
	p := &player{name: name, start: start, Process: start()}
	*c = append(*c, p)
	return p
}

// program is the start of one of the programs that are built.
func program(t testing.TB, env []string, name string, args ...string) func() *hubtest.Process {
	return func() *hubtest.Process { return hubtest.Start(t, env, nil, name, args...) }
}

// hub is the start of a hub.
func hub(t testing.TB, h *hubtest.Hub) func() *hubtest.Process {
	return func() *hubtest.Process {
		if h.Process == nil || h.Ended() {
			h.Start(t)
		}
		return h.Process
	}
}

// ends checks that a player that runs has not ended by itself.
func (p *player) runs(t testing.TB) {
	t.Helper()
	if p.Ended() {
		t.Fatalf("%s ended by itself with %d: %s%s", p.name, p.Cmd.ProcessState.ExitCode(), p.Stdout, p.Stderr)
	}
}

// killed kills players at random, and starts them again, until done. Then all run.
func (c cast) killed(t testing.TB, r *rand.Rand, pace time.Duration, done func() bool) {
	t.Helper()
	down := map[*player]bool{}
	for !done() {
		time.Sleep(time.Duration(r.Int64N(int64(2 * pace)))) // the pace of kills, not a wait for anything
		p := c[r.IntN(len(c))]
		if down[p] {
			p.Process = p.start()
			delete(down, p)
			continue
		}
		p.runs(t)
		p.Kill()
		p.kills++
		down[p] = true
		if r.IntN(2) == 0 { // at once, as a supervisor does it
			p.Process = p.start()
			delete(down, p)
		}
	}
	var said []string
	for _, p := range c {
		if down[p] {
			p.Process = p.start()
		}
		said = append(said, fmt.Sprintf("%s %d", p.name, p.kills))
	}
	t.Logf("kills: %s", strings.Join(said, ", "))
}

// stop tells a player to end.
func (p *player) stop(t testing.TB) {
	t.Helper()
	p.runs(t)
	p.Signal(syscall.SIGTERM)
	if code := p.Wait(); code != 0 {
		t.Errorf("%s ended with %d: %s", p.name, code, p.Stderr)
	}
}
