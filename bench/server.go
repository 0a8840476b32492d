//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A server is a process that is measured: the rshub program, or a floor.
type server struct {
	pid  int
	addr string // host:port
	end  func()
}

// stop ends the process, softly if it lets itself be ended so.
func (s *server) stop() { s.end() }

// build makes the rshub program.
func build(ctx context.Context, path string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-o", path, "github.com/rshub/rshub/cmd/rshub")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build rshub: %w\n%s", err, out)
	}
	return nil
}

// rshub starts the program on a data directory.
func (b *bench) rshub(dir string, env ...string) (*server, error) {
	cmd := exec.Command(b.program)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "RSHUB_") })
	cmd.Env = append(cmd.Env, "RSHUB_LISTEN=127.0.0.1:0", "RSHUB_OPS_LISTEN="+b.ops, "RSHUB_DATA="+dir, "RSHUB_RETENTION_AGE=0")
	cmd.Env = append(cmd.Env, env...)
	return start(cmd)
}

// floor starts this program as a floor, see runFloor.
func (b *bench) floor(args ...string) (*server, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return start(exec.Command(self, append([]string{"floor"}, args...)...))
}

// start runs a command and waits until it says where it listens: a line of JSON
// on standard error with the attribute listen.
func start(cmd *exec.Cmd) (*server, error) {
	r, w := io.Pipe()
	cmd.Stderr = w
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	started, stop, exited := make(chan error), make(chan struct{}), make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the process is signalled when its parent's thread ends, not the parent
		started <- cmd.Start()
		<-stop
	}()
	if err := <-started; err != nil {
		close(stop)
		return nil, err
	}
	go func() {
		exited <- cmd.Wait()
		_ = w.Close()
	}()
	s := &server{pid: cmd.Process.Pid, end: sync.OnceFunc(func() {
		defer close(stop)
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-exited:
		case <-time.After(5 * time.Second):
			_ = cmd.Process.Kill()
			<-exited
		}
	})}
	listen := make(chan string, 1)
	go readLog(r, listen)
	select {
	case s.addr = <-listen:
	case <-time.After(30 * time.Second):
	}
	if s.addr == "" {
		s.stop()
		return nil, errors.New(cmd.Path + " did not say where it listens")
	}
	return s, nil
}

// readLog tells listen the address, empty when the log ends without one, and
// shows what is worse than information.
func readLog(r io.Reader, listen chan<- string) {
	told := false
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		var line struct{ Level, Listen string }
		if json.Unmarshal(lines.Bytes(), &line) != nil || line.Level == "WARN" || line.Level == "ERROR" {
			fmt.Fprintf(os.Stderr, "%s\n", lines.Bytes())
		}
		if line.Listen != "" && !told {
			told = true
			listen <- line.Listen
		}
	}
	if !told {
		listen <- ""
	}
	_, _ = io.Copy(io.Discard, r)
}
