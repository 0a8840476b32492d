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

// A crowd is one server at many addresses. Each is a source of its own.
type crowd struct {
	port string

	mu    sync.Mutex
	asked map[string][]time.Time // when a source was asked for its list, by address
	worst map[string]func(w http.ResponseWriter, r *http.Request)
}

// listen serves at addresses.
func (c *crowd) listen(t *testing.T, addrs ...string) {
	stopping, stop := context.WithCancel(context.Background())
	s := &http.Server{Handler: c, BaseContext: func(net.Listener) context.Context { return stopping }}
	for _, addr := range addrs {
		l, err := net.Listen("tcp", addr+":"+c.port)
		if err != nil {
			t.Fatal(err)
		}
		go s.Serve(l) //nolint:errcheck // it ends with the test
	}
	t.Cleanup(func() {
		stop()
		_ = s.Close()
	})
}

const begin = `<?xml version="1.0" encoding="UTF-8"?><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">`

func (c *crowd) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	addr, _, _ := net.SplitHostPort(r.Host)
	c.mu.Lock()
	worst := c.worst[addr]
	if r.URL.Path == "/list.xml" {
		c.asked[addr] = append(c.asked[addr], time.Now())
	}
	c.mu.Unlock()
	switch {
	case worst != nil:
		worst(w, r)
	case r.URL.Path == "/list.xml":
		fmt.Fprintf(w, "%s<url><loc>http://%s/a</loc></url><url><loc>http://%[2]s/b</loc></url></urlset>", begin, r.Host)
	default:
		http.NotFound(w, r)
	}
}

// endless is a list that does not end. It sends so many entries at a time, and then pauses.
func endless(entries int, pause time.Duration) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		_, err := io.WriteString(w, begin)
		for n := 0; err == nil && r.Context().Err() == nil; {
			var b strings.Builder
			for range entries {
				n++
				fmt.Fprintf(&b, "<url><loc>http://%s/%050d</loc></url>\n", r.Host, n)
			}
			if _, err = io.WriteString(w, b.String()); pause > 0 {
				_ = http.NewResponseController(w).Flush()
				time.Sleep(pause) // the pace of the source
			}
		}
	}
}

// index is an index of so many lists, each of which has one resource.
func index(lists int) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/list.xml" {
			fmt.Fprintf(w, "%s<url><loc>http://%s%s</loc></url></urlset>", begin, r.Host, r.URL.Path)
			return
		}
		_, err := io.WriteString(w, strings.Replace(begin, "urlset", "sitemapindex", 1))
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

// peak returns the most memory that a process has had, in bytes.
func peak(t *testing.T, pid int) int64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`VmHWM:\s*(\d+) kB`).FindSubmatch(b)
	if m == nil {
		t.Fatalf("%s has no VmHWM", b)
	}
	kb, _ := strconv.ParseInt(string(m[1]), 10, 64)
	return kb << 10
}

// stored returns the bytes of all files below a directory.
func stored(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil // it is gone by now
		}
		if info, err := d.Info(); err == nil {
			n += info.Size()
		}
		return nil
	})
	return n
}

// TestCrowd has one hub poll many sources, while some of them do their worst. All others are
// looked at in time, and the hub stays small.
func TestCrowd(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("this system does not have all of 127.0.0.0/8, or does not say how much memory a process has had")
	}
	const (
		honest     = 500
		every      = time.Minute
		mostMemory = 512 << 20
		mostStored = 2 << 30 // a list of 512 MiB, and what is made to compare it
	)
	_, port, _ := net.SplitHostPort(hubtest.FreePort(t))
	c := &crowd{port: port, asked: map[string][]time.Time{}, worst: map[string]func(http.ResponseWriter, *http.Request){}}
	h := hubtest.StartHub(t, "RSHUB_CALLBACK_ALLOW=127.0.0.0/8")
	describe := func(addr string) {
		u := h.URL + "/sets/s" + strings.ReplaceAll(addr, ".", "-")
		a, err := hubtest.Request(http.MethodPut, u, strings.NewReader(fmt.Sprintf(`{"source":"http://%s:%s/list.xml","every":"1m"}`, addr, c.port)), hubtest.AsJSON)
		if err != nil || a.Status >= 300 {
			t.Fatalf("PUT %s: %+v, %v", u, a, err)
		}
	}
	for i, worst := range []func(http.ResponseWriter, *http.Request){
		endless(50, time.Second), endless(50, time.Second), endless(1000, 0), endless(1000, 0), index(50_000), index(1 << 30), busy(""), busy("1000000"), hang, hang,
	} {
		addr := fmt.Sprintf("127.66.0.%d", i+1)
		c.worst[addr] = worst
		c.listen(t, addr)
		describe(addr)
	}
	var addrs []string
	for i := range honest {
		addrs = append(addrs, fmt.Sprintf("127.10.%d.%d", i/200, 1+i%200))
	}
	c.listen(t, addrs...)
	begun := time.Now()
	for _, addr := range addrs {
		describe(addr)
	}
	t.Logf("%d sets were described within %v", honest, time.Since(begun).Round(time.Millisecond))

	most := int64(0)
	hubtest.Until(t, "each source was looked at three times", func() error {
		time.Sleep(200 * time.Millisecond) // to look often would slow down what is looked at
		most = max(most, stored(h.Data))
		c.mu.Lock()
		defer c.mu.Unlock()
		few := 0
		for _, addr := range addrs {
			looks := 0
			for i, at := range c.asked[addr] {
				if i == 0 || at.Sub(c.asked[addr][i-1]) > every/4 { // a look may ask twice
					looks++
				}
			}
			if looks < 3 {
				few++
			}
		}
		if h.Exited() {
			t.Fatalf("the hub ended: %s", h.Stderr)
		}
		if few > 0 {
			return errors.New(strconv.Itoa(few) + " were not")
		}
		return nil
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	longest, last := time.Duration(0), time.Now()
	for _, addr := range addrs {
		before := begun
		for _, at := range append(c.asked[addr], last) {
			longest = max(longest, at.Sub(before))
			before = at
		}
	}
	memory := peak(t, h.Cmd.Process.Pid)
	t.Logf("between two looks were at most %v; the hub had %d MiB of memory, and %d MiB of data; it has %d MiB now", longest.Round(time.Millisecond), memory>>20, most>>20, stored(h.Data)>>20)
	for addr := range c.worst {
		t.Logf("%s was asked for its list %d times", addr, len(c.asked[addr]))
	}
	if longest > 2*every {
		t.Errorf("a source was not looked at for %v, which is more than twice %v", longest, every)
	}
	if memory > mostMemory {
		t.Errorf("the hub needed %d MiB of memory", memory>>20)
	}
	if most > mostStored {
		t.Errorf("the hub's data had %d MiB", most>>20)
	}
}
