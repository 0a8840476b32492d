package hubtest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rshub/rshub/e2e/internal/trial"
)

// An output is the file that a process writes to: a run of hours writes much.
type output string

func (o output) String() string {
	b, err := os.ReadFile(string(o))
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// createOutput creates the file of an output.
func createOutput(t testing.TB, o output) *os.File {
	f, err := os.Create(string(o))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// A Process is a program that was started by a test. It is killed when the test ends.
type Process struct {
	t              testing.TB
	name           string
	Cmd            *exec.Cmd
	Stdout, Stderr output
	Done           chan struct{} // closed after it has exited
}

// environment returns the environment of the test with a new home, without variables of the
// programs.
func environment(t testing.TB, extra []string) []string {
	var env []string
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); !strings.HasPrefix(name, "RSHUB_") && !strings.HasPrefix(name, "RSPUBLISH_") && !strings.HasPrefix(name, "RSMIRROR_") &&
			name != "HOME" && name != "XDG_CACHE_HOME" {
			env = append(env, v)
		}
	}
	return append(append(env, "HOME="+t.TempDir()), extra...)
}

// Start starts a program in its own process group.
func Start(t testing.TB, env []string, stdin io.Reader, name string, args ...string) *Process {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = environment(t, env)
	cmd.Dir = t.TempDir()
	cmd.Stdin = stdin
	cmd.SysProcAttr = Attributes()
	return Launch(t, cmd)
}

// Launch starts a command that has its own process group.
func Launch(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	p := &Process{t: t, name: cmd.Path, Cmd: cmd, Done: make(chan struct{})}
	dir := t.TempDir()
	base := filepath.Join(dir, filepath.Base(cmd.Path))
	p.Stdout, p.Stderr = output(base+".out"), output(base+".err")
	stdout, stderr := createOutput(t, p.Stdout), createOutput(t, p.Stderr)
	defer stdout.Close()
	defer stderr.Close()
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.WaitDelay = 2 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", p.name, err)
	}
	if f, ok := cmd.Stdin.(*os.File); ok {
		_ = f.Close() // only the process has it open, so writers notice its exit
	}
	go func() {
		_ = cmd.Wait()                                      // Wait returns the exit code
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // kill its children
		close(p.Done)
	}()
	t.Cleanup(func() {
		p.Kill()
		text := p.Stderr.String()
		if strings.Contains(text, "WARNING: DATA RACE") || strings.Contains(text, "\npanic: ") || strings.Contains(text, "http: panic") || strings.Contains(text, "panic in a request") {
			t.Errorf("%s reported a data race or a panic", p.name)
		}
		if t.Failed() {
			t.Logf("%v wrote in %s:\n%s%s", cmd.Args, dir, trial.Tail(p.Stdout.String()), trial.Tail(text))
		}
	})
	return p
}

// Feed returns a pipe for the standard input of a process.
func Feed(t testing.TB) (stdin, feed *os.File) {
	t.Helper()
	stdin, feed, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { feed.Close() })
	return stdin, feed
}

// Signal sends a signal to the process, not to its group.
func (p *Process) Signal(s syscall.Signal) {
	if err := p.Cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Errorf("signal %s: %v", p.name, err)
	}
}

// Kill kills the process and its group, and waits.
func (p *Process) Kill() {
	select {
	case <-p.Done:
		return
	default:
	}
	_ = syscall.Kill(-p.Cmd.Process.Pid, syscall.SIGKILL) // it may have exited just now
	<-p.Done
}

// Wait waits until the process exits, and returns the exit code, or -1 after a signal.
func (p *Process) Wait() int {
	p.t.Helper()
	Until(p.t, p.name+" exits", func() error {
		if !p.Exited() {
			return errors.New("still running")
		}
		return nil
	})
	return p.Cmd.ProcessState.ExitCode()
}

// Exited reports whether the process has exited.
func (p *Process) Exited() bool {
	select {
	case <-p.Done:
		return true
	default:
		return false
	}
}

// WaitLog waits until standard error contains a text.
func (p *Process) WaitLog(text string) {
	p.t.Helper()
	Until(p.t, fmt.Sprintf("%s logs %q", p.name, text), func() error {
		if !strings.Contains(p.Stderr.String(), text) {
			return errors.New("not yet")
		}
		return nil
	})
}

// Run runs a program, and returns its exit code and output.
func Run(t testing.TB, env []string, stdin io.Reader, name string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	p := Start(t, env, stdin, name, args...)
	code = p.Wait()
	return code, p.Stdout.String(), p.Stderr.String()
}
