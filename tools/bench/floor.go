//go:build linux

package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/gorilla/websocket"
)

// runFloor runs a floor or the sink as a separate process. It returns only if it fails.
func runFloor(kind string, args []string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	var h http.Handler
	switch {
	case kind == "request" && len(args) == 0:
		h = newRequestFloor()
	case kind == "fanout" && len(args) == 0:
		h = &fanoutFloor{conns: map[bool][]net.Conn{}}
	case kind == "replay" && len(args) == 1:
		h, err = newReplay(args[0])
	case kind == "publish" && len(args) == 1:
		h, err = newPublishFloor(args[0])
	case kind == "files" && len(args) == 1:
		h, err = newFiles(args[0])
	case kind == "sink" && len(args) == 0:
		h, err = newSink(l.Addr().String())
	case kind == "callbacks" && len(args) == 2:
		h, err = newCallbackFloor(args[0], args[1])
	default:
		return fmt.Errorf("unknown floor %s %q", kind, args)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "{\"listen\":%q}\n", l.Addr())
	return http.Serve(l, h)
}

// A committer appends to a file durably, with one fsync for all waiting callers. A caller writes
// for all waiting callers if no other caller is writing.
type committer struct {
	f *os.File

	mu      sync.Mutex
	done    sync.Cond // of mu: a commit has finished
	waiting []byte
	busy    bool
	next    int // number of the commit for waiting
	ended   int // number of the last finished commit
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

// append appends b and returns when it is durable.
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

// newPublishFloor returns the floor of publishes over HTTP: it reads the body, appends a previously
// encoded block, and responds. The path has the number of changes in the block.
func newPublishFloor(dir string) (http.Handler, error) {
	file, err := newCommitter(filepath.Join(dir, "floor"))
	if err != nil {
		return nil, err
	}
	c := newContent()
	block := map[string][]byte{}
	for _, n := range batchSizes {
		block[strconv.Itoa(n)] = blocks(c.batch(0, n))
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /{n}", func(w http.ResponseWriter, r *http.Request) {
		body := make([]byte, r.ContentLength)
		_, err := io.ReadFull(r.Body, body)
		if err == nil {
			err = file.append(block[r.PathValue("n")])
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		fmt.Fprintln(w, `{"count":`+r.PathValue("n")+`}`)
	})
	return mux, nil
}

// A fanoutFloor is a push server that does the minimum work. It has plain connections, without a
// goroutine or a buffer for each. It encodes each posted body once as a frame or an event, and
// writes it to each connection with one system call.
type fanoutFloor struct {
	mu    sync.Mutex
	conns map[bool][]net.Conn // keyed by whether they are event streams
	out   []byte
}

func (s *fanoutFloor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		body := make([]byte, r.ContentLength)
		if _, err := io.ReadFull(r.Body, body); err != nil {
			return // the bench notices by itself
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.out = appendFrame(s.out[:0], body)
		s.write(false)
		s.out = append(append(append(s.out[:0], "data: "...), body...), "\n\n"...)
		s.write(true)
		return
	}
	s.mu.Lock() // a subscriber gets every message after the response
	defer s.mu.Unlock()
	c, events, err := takeOver(w, r)
	if err != nil {
		return
	}
	s.conns[events] = append(s.conns[events], c)
	if len(s.conns[events])%100 == 0 {
		debug.FreeOSMemory() // measure the memory of connections, not of handshakes
	}
}

// write writes to every connection, and drops the closed ones.
func (s *fanoutFloor) write(events bool) {
	s.conns[events] = slices.DeleteFunc(s.conns[events], func(c net.Conn) bool {
		_, err := c.Write(s.out)
		return err != nil
	})
}

// takeOver responds to a subscriber and hijacks its connection.
func takeOver(w http.ResponseWriter, r *http.Request) (c net.Conn, events bool, err error) {
	if r.Header.Get("Upgrade") != "" {
		ws, err := new(websocket.Upgrader).Upgrade(w, r, nil)
		if err != nil {
			return nil, false, err
		}
		return ws.NetConn(), false, nil
	}
	if c, _, err = w.(http.Hijacker).Hijack(); err == nil {
		_, err = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
	}
	return c, true, err
}

// appendFrame appends a message as a WebSocket frame of a server.
func appendFrame(dst, body []byte) []byte {
	const final, text = 0x80, 1
	dst = append(dst, final|text)
	switch n := len(body); {
	case n < 126:
		dst = append(dst, byte(n))
	case n < 1<<16:
		dst = binary.BigEndian.AppendUint16(append(dst, 126), uint16(n))
	default:
		dst = binary.BigEndian.AppendUint64(append(dst, 127), uint64(n))
	}
	return append(dst, body...)
}

// newReplay returns a handler that writes a file from memory to each subscriber, and waits until
// the subscriber closes.
func newReplay(name string) (http.Handler, error) {
	log, err := os.ReadFile(name)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, _, err := takeOver(w, r)
		if err != nil {
			return
		}
		defer c.Close()
		for part := range slices.Chunk(log, 256<<10) {
			if _, err := c.Write(part); err != nil {
				return
			}
		}
		_, _ = io.Copy(io.Discard, c)
	}), err
}

// newFiles returns a handler that serves the files below a directory from memory.
func newFiles(dir string) (http.Handler, error) {
	bodies := map[string][]byte{"/": nil}
	err := filepath.WalkDir(dir, func(name string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			bodies[strings.TrimPrefix(name, dir)], err = os.ReadFile(name)
		}
		return err
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, ok := bodies[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		etag := `"` + r.URL.Path + `"`
		h := w.Header()
		h.Set("ETag", etag)
		if r.Header.Get("If-None-Match") == etag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		h.Set("Content-Type", "text/plain")
		h.Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = w.Write(body) // an error means that the client closed the connection
	}), err
}
