//go:build linux

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// answerTime bounds how long one answer of a server may take.
const answerTime = 20 * time.Second

// A server is a measured process: the rshub program, a floor, or a dependency of them.
type server struct {
	pid    int
	addr   string        // host:port
	exited chan struct{} // closed when the process has ended
}

const module = "github.com/rshub/rshub"

// build builds a program once, and returns its path: one in cmd, or nats-server, which is required
// by the module of the end-to-end tests, so that rshub's module does not require it.
func (b *bench) build(name string) string {
	if name == "rshub" && b.program != "" {
		return b.program
	}
	path := filepath.Join(b.work, name)
	if _, err := os.Stat(path); err == nil {
		return path
	}
	root := strings.TrimSpace(string(have(exec.CommandContext(b.ctx, "go", "list", "-m", "-f", "{{.Dir}}", module).Output())))
	cmd := exec.CommandContext(b.ctx, "go", "build", "-o", path, "./cmd/"+name)
	cmd.Dir = root
	if name == "nats-server" {
		cmd = exec.CommandContext(b.ctx, "go", "build", "-o", path, "github.com/nats-io/nats-server/v2")
		cmd.Dir = filepath.Join(root, "e2e")
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		must(fmt.Errorf("build %s: %w\n%s", name, err, out))
	}
	return path
}

// plainEnv returns the environment without variables that the programs read.
func plainEnv() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "RSHUB_") || strings.HasPrefix(v, "RSPUBLISH_") || strings.HasPrefix(v, "RSMIRROR_")
	})
}

// rshub starts the program with a data directory.
func (b *bench) rshub(dir string, env ...string) *server {
	cmd := exec.Command(b.build("rshub"))
	cmd.Env = append(plainEnv(), "RSHUB_LISTEN=127.0.0.1:0", "RSHUB_OPS_LISTEN="+b.ops, "RSHUB_DATA="+dir, "RSHUB_RETENTION_AGE=0")
	cmd.Env = append(cmd.Env, env...)
	return b.start(cmd)
}

// floor starts this program as a floor, see runFloor.
func (b *bench) floor(args ...string) *server {
	return b.start(exec.Command(have(os.Executable()), append([]string{"floor"}, args...)...))
}

// start runs a command and waits until it reports its address: a line of JSON on standard error
// with the attribute listen. It prints warnings and errors.
func (b *bench) start(cmd *exec.Cmd) *server {
	r, w := io.Pipe()
	cmd.Stderr = w
	s := b.spawn(cmd)
	go func() {
		<-s.exited
		_ = w.Close()
	}()
	listen := make(chan string, 1)
	go func() {
		defer close(listen)
		for lines := bufio.NewScanner(r); lines.Scan(); {
			var line struct{ Level, Listen string }
			if json.Unmarshal(lines.Bytes(), &line) != nil || line.Level == "WARN" || line.Level == "ERROR" {
				fmt.Fprintf(os.Stderr, "%s\n", lines.Bytes())
			}
			if line.Listen != "" {
				select {
				case listen <- line.Listen:
				default: // it was told
				}
			}
		}
		_, _ = io.Copy(io.Discard, r)
	}()
	select {
	case s.addr = <-listen:
	case <-time.After(answerTime):
	}
	if s.addr == "" {
		must(errors.New(cmd.Path + " did not say where it listens"))
	}
	return s
}

// startAt runs a command with an unused address to listen at, and waits until it does. args gets
// the host and the port.
func (b *bench) startAt(program string, args func(host, port string) []string) *server {
	l := have(net.Listen("tcp", "127.0.0.1:0"))
	addr := l.Addr().String()
	must(l.Close())
	host, port, err := net.SplitHostPort(addr)
	must(err)
	s := b.spawn(exec.Command(program, args(host, port)...))
	s.addr = addr
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for begin := time.Now(); time.Since(begin) < answerTime; {
		if conn, err := net.Dial("tcp", addr); err == nil {
			_ = conn.Close()
			return s
		}
		select {
		case <-tick.C:
		case <-s.exited:
			must(errors.New(program + " ended at once"))
		}
	}
	must(errors.New(program + " does not listen at " + addr))
	return nil
}

// spawn runs a command until the end of the scope, or of this process: no thread of this process
// exits earlier.
func (b *bench) spawn(cmd *exec.Cmd) *server {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	must(cmd.Start())
	s := &server{pid: cmd.Process.Pid, exited: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // the exit status does not matter
		close(s.exited)
	}()
	b.later(func() error {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-s.exited:
		case <-time.After(5 * time.Second):
			_ = cmd.Process.Kill()
			<-s.exited
		}
		return nil
	})
	return s
}
