package polled

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// A crowd is one server at many addresses. Each address is a separate source.
type crowd struct {
	port string

	mu       sync.Mutex
	requests map[string][]time.Time                                  // times of the requests for lists, by address
	hostile  map[string]func(w http.ResponseWriter, r *http.Request) // handlers by address
}

// listen listens on addresses.
func (c *crowd) listen(t *testing.T, addrs ...string) {
	stopping, stop := context.WithCancel(context.Background())
	s := &http.Server{Handler: c, BaseContext: func(net.Listener) context.Context { return stopping }}
	for _, addr := range addrs {
		l, err := net.Listen("tcp", addr+":"+c.port)
		if err != nil {
			t.Fatal(err)
		}
		go s.Serve(l) //nolint:errcheck // stops with the test
	}
	t.Cleanup(func() {
		stop()
		_ = s.Close()
	})
}

const listStart = `<?xml version="1.0" encoding="UTF-8"?><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">`

func (c *crowd) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	addr, _, _ := net.SplitHostPort(r.Host)
	c.mu.Lock()
	hostile := c.hostile[addr]
	if r.URL.Path == "/list.xml" {
		c.requests[addr] = append(c.requests[addr], time.Now())
	}
	c.mu.Unlock()
	switch {
	case hostile != nil:
		hostile(w, r)
	case r.URL.Path == "/list.xml":
		fmt.Fprintf(w, "%s<url><loc>http://%s/a</loc></url><url><loc>http://%[2]s/b</loc></url></urlset>", listStart, r.Host)
	default:
		http.NotFound(w, r)
	}
}

// endless serves a list that does not end. It sends a number of entries at a time, and then pauses.
func endless(entries int, pause time.Duration) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		_, err := io.WriteString(w, listStart)
		for n := 0; err == nil && r.Context().Err() == nil; {
			var b strings.Builder
			for range entries {
				n++
				fmt.Fprintf(&b, "<url><loc>http://%s/%050d</loc></url>\n", r.Host, n)
			}
			if _, err = io.WriteString(w, b.String()); pause > 0 {
				_ = http.NewResponseController(w).Flush()
				time.Sleep(pause) // pace of the source
			}
		}
	}
}

// index serves an index of lists with one resource each.
func index(lists int) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/list.xml" {
			fmt.Fprintf(w, "%s<url><loc>http://%s%s</loc></url></urlset>", listStart, r.Host, r.URL.Path)
			return
		}
		_, err := io.WriteString(w, strings.Replace(listStart, "urlset", "sitemapindex", 1))
		for n := 0; n < lists && err == nil; n++ {
			_, err = fmt.Fprintf(w, "<sitemap><loc>http://%s/%d</loc></sitemap>\n", r.Host, n)
		}
		_, _ = io.WriteString(w, "</sitemapindex>")
	}
}

func busy(after string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		if after != "" {
			w.Header().Set("Retry-After", after)
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

func hang(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// peak returns the peak memory of a process in bytes.
func peak(t *testing.T, pid int) int64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`VmHWM:\s*(\d+) kB`).FindSubmatch(b)
	if m == nil {
		t.Fatalf("found no VmHWM in %s", b)
	}
	kb, _ := strconv.ParseInt(string(m[1]), 10, 64)
	return kb << 10
}

// stored returns the size of all files below a directory in bytes.
func stored(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil // removed in the meantime
		}
		if info, err := d.Info(); err == nil {
			n += info.Size()
		}
		return nil
	})
	return n
}

// TestHostileSources has one hub poll many sources. Some are hostile. All others are
// polled in time, and the hub stays within its memory and disk limits.
func TestHostileSources(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("needs all of 127.0.0.0/8 and the peak memory of processes, as on Linux")
	}
	const (
		honest    = 500
		every     = time.Minute
		maxMemory = 512 << 20
		maxStored = 2 << 30 // a list of 512 MiB with its sorted copies
	)
	_, port, _ := net.SplitHostPort(hubtest.FreePort(t))
	c := &crowd{port: port, requests: map[string][]time.Time{}, hostile: map[string]func(http.ResponseWriter, *http.Request){}}
	h := hubtest.StartHub(t, "RSHUB_CALLBACK_ALLOW=127.0.0.0/8")
	describe := func(addr string) {
		u := h.URL + "/sets/s" + strings.ReplaceAll(addr, ".", "-")
		a, err := hubtest.Request(http.MethodPut, u, strings.NewReader(fmt.Sprintf(`{"source":"http://%s:%s/list.xml","every":"1m"}`, addr, c.port)), hubtest.AsJSON)
		if err != nil || a.Status >= 300 {
			t.Fatalf("PUT %s: %+v, %v", u, a, err)
		}
	}
	for i, handler := range []func(http.ResponseWriter, *http.Request){
		endless(50, time.Second), endless(50, time.Second), endless(1000, 0), endless(1000, 0), index(50_000), index(1 << 30), busy(""), busy("1000000"), hang, hang,
	} {
		addr := fmt.Sprintf("127.66.0.%d", i+1)
		c.hostile[addr] = handler
		c.listen(t, addr)
		describe(addr)
	}
	var addrs []string
	for i := range honest {
		addrs = append(addrs, fmt.Sprintf("127.10.%d.%d", i/200, 1+i%200))
	}
	c.listen(t, addrs...)
	start := time.Now()
	for _, addr := range addrs {
		describe(addr)
	}
	t.Logf("described %d sets in %v", honest, time.Since(start).Round(time.Millisecond))

	maxData := int64(0)
	hubtest.Until(t, "each source was polled three times", func() error {
		time.Sleep(200 * time.Millisecond) // frequent checks would slow down the hub
		maxData = max(maxData, stored(h.Data))
		c.mu.Lock()
		defer c.mu.Unlock()
		late := 0
		for _, addr := range addrs {
			polls := 0
			for i, at := range c.requests[addr] {
				if i == 0 || at.Sub(c.requests[addr][i-1]) > every/4 { // a poll may request the list twice
					polls++
				}
			}
			if polls < 3 {
				late++
			}
		}
		if h.Exited() {
			t.Fatalf("the hub exited: %s", h.Stderr)
		}
		if late > 0 {
			return errors.New(strconv.Itoa(late) + " sources were not")
		}
		return nil
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	longest, last := time.Duration(0), time.Now()
	for _, addr := range addrs {
		before := start
		for _, at := range append(c.requests[addr], last) {
			longest = max(longest, at.Sub(before))
			before = at
		}
	}
	memory := peak(t, h.Cmd.Process.Pid)
	t.Logf("longest interval between polls %v; peak memory of the hub %d MiB, peak data %d MiB, now %d MiB", longest.Round(time.Millisecond), memory>>20, maxData>>20, stored(h.Data)>>20)
	for addr := range c.hostile {
		t.Logf("%s: %d requests for its list", addr, len(c.requests[addr]))
	}
	if longest > 2*every {
		t.Errorf("longest interval between polls of a source = %v, want at most twice %v", longest, every)
	}
	if memory > maxMemory {
		t.Errorf("peak memory of the hub = %d MiB, want at most %d MiB", memory>>20, maxMemory>>20)
	}
	if maxData > maxStored {
		t.Errorf("peak data of the hub = %d MiB, want at most %d MiB", maxData>>20, maxStored>>20)
	}
}
