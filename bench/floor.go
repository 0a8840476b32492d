//go:build linux

package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/resourcesync"
)

// runFloor runs a floor that is a process of its own. It returns only when it fails.
func runFloor(kind string, args []string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if _, err := raiseFiles(); err != nil {
		return err
	}
	var serve func() error
	switch {
	case kind == "fanout" && len(args) == 0:
		serve = func() error { return (&fanoutFloor{}).serve(l) }
	case kind == "replay" && len(args) == 1:
		b, err := os.ReadFile(args[0])
		if err != nil {
			return err
		}
		serve = func() error { return (&fanoutFloor{log: b}).serve(l) }
	case kind == "publish" && len(args) == 2:
		h, err := newPublishFloor(args[0], args[1])
		if err != nil {
			return err
		}
		serve = func() error { return http.Serve(l, h) }
	case kind == "documents" && len(args) == 1:
		h, err := newDocumentsFloor(args[0])
		if err != nil {
			return err
		}
		serve = func() error { return http.Serve(l, h) }
	case kind == "answers" && len(args) == 1:
		h, err := newAnswersFloor(args[0])
		if err != nil {
			return err
		}
		serve = func() error { return http.Serve(l, h) }
	case kind == "origin" && len(args) == 0:
		serve = func() error { return http.Serve(l, http.HandlerFunc(serveContent)) }
	case kind == "metrics" && len(args) == 0:
		serve = func() error { return serveMetricsFloor(l) }
	case kind == "sink" && len(args) == 0:
		serve = func() error { return serveSink(l) }
	case kind == "callbacks" && len(args) == 3:
		n, err := strconv.Atoi(args[1])
		if err != nil {
			return err
		}
		serve = func() error { return serveCallbackFloor(l, args[0], n, args[2]) }
	default:
		return fmt.Errorf("there is no floor %s %q", kind, args)
	}
	fmt.Fprintf(os.Stderr, "{\"listen\":%q}\n", l.Addr())
	return serve()
}

// A committer appends to a file and makes the appends durable, with one fsync for all
// callers that wait. A caller that finds nobody writing writes for itself and for all
// callers that wait.
type committer struct {
	f *os.File

	mu      sync.Mutex
	done    sync.Cond // of mu: a commit ended
	waiting []byte
	busy    bool
	next    int // number of the commit that waiting belongs to
	ended   int // the last commit that ended
	err     error
}

func newCommitter(path string) (*committer, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	c := &committer{f: f, next: 1}
	c.done.L = &c.mu
	return c, nil
}

// append returns when b is durable.
func (c *committer) append(b []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = append(c.waiting, b...)
	mine := c.next
	for c.ended < mine {
		if c.busy {
			c.done.Wait()
			continue
		}
		c.busy = true
		out, n := c.waiting, c.next
		c.waiting, c.next = nil, n+1
		c.mu.Unlock()
		_, err := c.f.Write(out)
		if err == nil {
			err = syscall.Fdatasync(int(c.f.Fd()))
		}
		c.mu.Lock()
		c.busy, c.ended = false, n
		if err != nil {
			c.err = err
		}
		c.done.Broadcast()
	}
	return c.err
}

// encode returns what the memory stores of a batch: its blocks.
func (c content) encode(i, n int) []byte { return encoded(c.batch(i, n)) }

func encoded(changes []resourcesync.Change) (out []byte) {
	for _, block := range changelog.CutBlocks(changes, 1, 10_000) {
		out = append(out, block.Block...)
	}
	return out
}

// encodeAll returns the blocks of all different batches of n.
func (c content) encodeAll(n int) [][]byte {
	out := make([][]byte, len(c)/n)
	for i := range out {
		out[i] = c.encode(i, n)
	}
	return out
}

// newPublishFloor returns the floor of publishes over HTTP: it reads the body,
// appends a block that was encoded before, and answers. The path says how many
// changes are in it. Behind /decoded, it decodes the body and encodes the block, with rshub's
// own functions; it checks nothing.
func newPublishFloor(dir, data string) (http.Handler, error) {
	c, _, err := loadContent(data)
	if err != nil {
		return nil, err
	}
	file, err := newCommitter(filepath.Join(dir, "floor"))
	if err != nil {
		return nil, err
	}
	blocks := map[string][]byte{}
	for _, n := range batchSizes {
		blocks[strconv.Itoa(n)] = c.encode(0, n)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /{n}", func(w http.ResponseWriter, r *http.Request) {
		body := make([]byte, r.ContentLength)
		_, err := io.ReadFull(r.Body, body)
		if err == nil {
			err = file.append(blocks[r.PathValue("n")])
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		fmt.Fprintln(w, `{"count":`+r.PathValue("n")+`}`)
	})
	mux.HandleFunc("POST /decoded/{n}", func(w http.ResponseWriter, r *http.Request) {
		var changes []resourcesync.Change
		lines := resourcesync.NewNDJSONReader(r.Body, resourcesync.Limits{})
		var c resourcesync.Change
		var err error
		for err = lines.Read(&c); err == nil; err = lines.Read(&c) {
			changes = append(changes, c)
		}
		if err == io.EOF {
			err = file.append(encoded(changes))
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		fmt.Fprintln(w, `{"count":`+r.PathValue("n")+`}`)
	})
	return mux, nil
}
