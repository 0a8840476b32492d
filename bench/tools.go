//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rshub/rshub/resourcesync"
)

// tool builds one of the programs of both ends, once, and returns its path.
func (b *bench) tool(name string) (string, error) {
	path := filepath.Join(b.work, name)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	return path, build(b.ctx, path, name)
}

// hubOn starts rshub on a new directory.
func (b *bench) hubOn(env ...string) (hub *server, stop func(), err error) {
	dir, err := b.dir()
	if err != nil {
		return nil, nil, err
	}
	if hub, err = b.rshub(dir, env...); err != nil {
		_ = os.RemoveAll(dir)
		return nil, nil, err
	}
	return hub, func() { hub.stop(); _ = os.RemoveAll(dir) }, nil
}

// plainEnv is the environment without what the programs would read of it.
func plainEnv() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "RSHUB_") || strings.HasPrefix(v, "RSPUBLISH_") || strings.HasPrefix(v, "RSMIRROR_")
	})
}

// A runOf is what a program took until it ended, and what it wrote.
type runOf struct {
	usage // cpu is of the program
	out   []byte
}

// run runs a program until it ends. It is an error if the program fails. What the servers
// take meanwhile is not that of others.
func (b *bench) run(servers []*server, program string, args ...string) (r runOf, err error) {
	cmd := exec.CommandContext(b.ctx, program, args...)
	var out, problems bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = plainEnv(), &out, &problems
	r.usage, err = measure(cmd.Run, servers...)
	if err != nil {
		return r, fmt.Errorf("%s: %w: %.500s", filepath.Base(program), err, problems.Bytes())
	}
	r.cpu = (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
	r.others = max(0, r.others-r.cpu/r.seconds/float64(runtime.NumCPU()))
	r.out = out.Bytes()
	return r, nil
}

// publishAll publishes changes to a hub, by batches.
func publishAll(ctx context.Context, hub *server, changes []resourcesync.Change) error {
	p, err := newPoster(hub.addr, "/sets/"+benchSet+"/changes")
	if err != nil {
		return err
	}
	defer p.conn.Close()
	for part := range slices.Chunk(changes, 1000) {
		if err := p.post(ndjson(part)); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// busyTime returns how long the threads of a process have run, to the microsecond, where
// cpuOf has steps of 10 ms. What threads took that have ended is not in it.
func busyTime(pid int) (d time.Duration, err error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("process %d has ended", pid)
	}
	for _, name := range files {
		text, rerr := os.ReadFile(name)
		if rerr != nil {
			continue // the thread has ended
		}
		first, _, _ := strings.Cut(string(text), " ")
		n, perr := strconv.ParseInt(first, 10, 64)
		if perr != nil {
			return 0, fmt.Errorf("%s: %w", name, perr)
		}
		d += time.Duration(n)
	}
	return d, err
}
