package e2e

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

// redirect makes the file of an output.
func redirect(t testing.TB, o output) *os.File {
	f, err := os.Create(string(o))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// A process is a program that was started by a test, and ends with it.
type process struct {
	t              testing.TB
	name           string
	cmd            *exec.Cmd
	stdout, stderr output
	done           chan struct{} // closed when it has ended
}

// environment is the test's own without what configures the programs, and with
// a home that nobody else uses.
func environment(t testing.TB, extra []string) []string {
	var env []string
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); !strings.HasPrefix(name, "RSHUB_") && !strings.HasPrefix(name, "RSPUBLISH_") &&
			name != "HOME" && name != "XDG_CACHE_HOME" {
			env = append(env, v)
		}
	}
	return append(append(env, "HOME="+t.TempDir()), extra...)
}

// start starts a program in a process group of its own.
func start(t testing.TB, env []string, stdin io.Reader, name string, args ...string) *process {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = environment(t, env)
	cmd.Dir = t.TempDir()
	cmd.Stdin = stdin
	cmd.SysProcAttr = attributes()
	return launch(t, cmd)
}

// launch starts a command, whose group is its own.
func launch(t testing.TB, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{t: t, name: cmd.Path, cmd: cmd, done: make(chan struct{})}
	dir := t.TempDir()
	said := filepath.Join(dir, filepath.Base(cmd.Path))
	p.stdout, p.stderr = output(said+".out"), output(said+".err")
	stdout, stderr := redirect(t, p.stdout), redirect(t, p.stderr)
	defer stdout.Close()
	defer stderr.Close()
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.WaitDelay = 2 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", p.name, err)
	}
	if f, ok := cmd.Stdin.(*os.File); ok {
		_ = f.Close() // it is the process's alone: who writes to it notices its end
	}
	go func() {
		_ = cmd.Wait() // the exit code says it
		close(p.done)
	}()
	t.Cleanup(func() {
		p.kill()
		text := p.stderr.String()
		if strings.Contains(text, "WARNING: DATA RACE") || strings.Contains(text, "\npanic: ") || strings.Contains(text, "http: panic") {
			t.Errorf("%s raced or panicked", p.name)
		}
		if t.Failed() {
			t.Logf("%v wrote in %s:\n%s%s", cmd.Args, dir, tail(p.stdout.String()), tail(text))
		}
	})
	return p
}

// feed returns a pipe to feed a process by.
func feed(t testing.TB) (stdin, feed *os.File) {
	t.Helper()
	stdin, feed, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { feed.Close() })
	return stdin, feed
}

// tail is the end of a long text.
func tail(s string) string {
	const most = 6000
	if len(s) > most {
		s = "…" + s[len(s)-most:]
	}
	return s
}

// signal sends a signal to the process itself.
func (p *process) signal(s syscall.Signal) {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Errorf("signal %s: %v", p.name, err)
	}
}

// kill ends the process, and its group, with SIGKILL, and waits.
func (p *process) kill() {
	select {
	case <-p.done:
		return
	default:
	}
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // it may have ended just now
	<-p.done
}

// wait waits for the end and returns the exit code; -1 when a signal ended it.
func (p *process) wait() int {
	p.t.Helper()
	until(p.t, p.name+" ends", func() error {
		if !p.ended() {
			return errors.New("it still runs")
		}
		return nil
	})
	return p.cmd.ProcessState.ExitCode()
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// says waits until stderr has a text.
func (p *process) says(text string) {
	p.t.Helper()
	until(p.t, fmt.Sprintf("%s says %q", p.name, text), func() error {
		if !strings.Contains(p.stderr.String(), text) {
			return errors.New("not yet")
		}
		return nil
	})
}

// run runs a program to its end and returns its exit code and what it wrote.
func run(t testing.TB, env []string, stdin io.Reader, name string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	p := start(t, env, stdin, name, args...)
	code = p.wait()
	return code, p.stdout.String(), p.stderr.String()
}
