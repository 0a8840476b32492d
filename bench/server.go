//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
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
	pid    int
	addr   string        // host:port
	ops    string        // the same, where there is one
	exited chan struct{} // closed when the process has ended
	end    func()
}

// stop ends the process: with SIGTERM first, and by force if that is not enough.
func (s *server) stop() { s.end() }

// build makes one of the programs in cmd.
func build(ctx context.Context, path, name string) error {
	return buildPackage(ctx, path, "github.com/rshub/rshub/cmd/"+name)
}

func buildPackage(ctx context.Context, path, name string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-o", path, name)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", name, err, out)
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
	self := b.self
	if self == "" {
		var err error
		if self, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	return start(exec.Command(self, append([]string{"floor"}, args...)...))
}

// start runs a command and waits until it says where it listens: a line of JSON
// on standard error with the attribute listen.
func start(cmd *exec.Cmd) (*server, error) {
	r, w := io.Pipe()
	cmd.Stderr = w
	s, err := spawn(cmd)
	if err != nil {
		return nil, err
	}
	go func() {
		<-s.exited
		_ = w.Close()
	}()
	listen := make(chan logLine, 1)
	go readLog(r, listen)
	select {
	case line := <-listen:
		s.addr, s.ops = line.Listen, line.Ops
	case <-time.After(30 * time.Second):
	}
	if s.addr == "" {
		s.stop()
		return nil, errors.New(cmd.Path + " did not say where it listens")
	}
	return s, nil
}

// startAt runs a command that listens at addr, and waits until it does.
func startAt(addr string, cmd *exec.Cmd) (*server, error) {
	s, err := spawn(cmd)
	if err != nil {
		return nil, err
	}
	s.addr = addr
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for begin := time.Now(); time.Since(begin) < answerTime; {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			return s, conn.Close()
		}
		select {
		case <-tick.C:
		case <-s.exited:
			return nil, errors.New(cmd.Path + " ended at once")
		}
	}
	s.stop()
	return nil, errors.New(cmd.Path + " does not listen at " + addr)
}

// freeAddress returns an address of this machine that nobody listens at.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// spawn runs a command that ends with this process, if not before.
func spawn(cmd *exec.Cmd) (*server, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	started, stop, exited := make(chan error), make(chan struct{}), make(chan struct{})
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
		_ = cmd.Wait() // how it ended is no matter
		close(exited)
	}()
	return &server{pid: cmd.Process.Pid, exited: exited, end: sync.OnceFunc(func() {
		defer close(stop)
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-exited:
		case <-time.After(5 * time.Second):
			_ = cmd.Process.Kill()
			<-exited
		}
	})}, nil
}

// A logLine is the part of a log line that readLog looks at.
type logLine struct{ Level, Listen, Ops string }

// readLog sends to listen the line with the address, or an empty line if the log ends
// without one. It shows warnings and errors.
func readLog(r io.Reader, listen chan<- logLine) {
	told := false
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		var line logLine
		if json.Unmarshal(lines.Bytes(), &line) != nil || line.Level == "WARN" || line.Level == "ERROR" {
			fmt.Fprintf(os.Stderr, "%s\n", lines.Bytes())
		}
		if line.Listen != "" && !told {
			told = true
			listen <- line
		}
	}
	if !told {
		listen <- logLine{}
	}
	_, _ = io.Copy(io.Discard, r)
}
