//go:build linux

package main

import (
	"archive/zip"
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	hubclient "github.com/rshub/rshub/client"
	"github.com/rshub/rshub/feed"
)

// dumps measures a Resource Dump of small contents, in a hub that does nothing else.
func (b *bench) dumps(t *table) error {
	for _, n := range []int{b.contents, 5 * b.contents} {
		if err := b.dumpsOf(t, n); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) dumpsOf(t *table, n int) error {
	top, err := b.dir()
	if err != nil {
		return err
	}
	defer os.RemoveAll(top)
	m, err := b.mirrored(n, "RSHUB_CONTENT_PLACE="+filepath.Join(top, "place"), "RSHUB_CALLBACK_ALLOW=127.0.0.0/8", "RSHUB_CHANGELIST_SIZE=25000")
	if err != nil {
		return err
	}
	defer m.done()
	servers := []*server{m.hub, m.origin}
	what := format(float64(n)) + " contents of 1 KB"
	if err := m.rest(m.hub); err != nil {
		return err
	}
	return alternate(b,
		func() (d dumped, err error) {
			d.usage, err = measure(func() error { return m.pack(filepath.Join(top, "floor.zip")) }, servers...)
			d.cpu = d.own
			return d, err
		},
		func() (dumped, error) { return m.dump(servers) },
		func(f, o dumped) {
			count, others := float64(n), max(f.others, o.others)
			t.add(what, metric{name: "contents/s", limit: 0.5, least: true, ratio: true}, count/f.seconds, count/o.seconds, others)
			t.add(what, metric{name: "CPU µs/content"}, 1e6*f.cpu/count, 1e6*o.cpu/count, others)
			t.add(what, metric{name: "MB at the most, more than before"}, 0, o.more/1e6, others)
		})
}

// A dumped is what a dump took.
type dumped struct {
	usage
	more float64 // bytes of memory
}

// dump lets the hub make a Resource Dump.
func (m *mirrored) dump(servers []*server) (d dumped, err error) {
	c, err := hubclient.New("http://"+m.hub.addr, hubclient.Options{})
	if err != nil {
		return d, err
	}
	before, err := rssOf(m.hub.pid)
	if err != nil {
		return d, err
	}
	most := before
	spent, err := cpuOf(m.hub.pid)
	if err != nil {
		return d, err
	}
	if d.usage, err = measure(func() error {
		if err := c.Describe(m.ctx, benchSet, feed.Description{Dumps: true}); err != nil {
			return err
		}
		return m.until(http.StatusOK, &most)
	}, servers...); err != nil {
		return d, err
	}
	after, err := cpuOf(m.hub.pid)
	if err != nil {
		return d, err
	}
	d.cpu, d.more = after-spent, most-before
	if err := m.checkDump(); err != nil {
		return d, err
	}
	if err := c.Describe(m.ctx, benchSet, feed.Description{}); err != nil { // which removes it
		return d, err
	}
	return d, m.until(http.StatusNotFound, &most)
}

const dumpURL = "/sets/" + benchSet + "/resourcedump.xml"

// until waits until the Resource Dump is answered with a status, and notes how much memory the hub
// has at the most.
func (m *mirrored) until(status int, most *float64) error {
	for {
		resp, err := http.Get("http://" + m.hub.addr + dumpURL)
		if err != nil {
			return err
		}
		_ = resp.Body.Close()
		if resp.StatusCode == status {
			return nil
		}
		rss, err := rssOf(m.hub.pid)
		if *most = max(*most, rss); err != nil {
			return err
		}
		if err := m.pause(20 * time.Millisecond); err != nil {
			return err
		}
	}
}

// checkDump checks that nothing is missing in the dump.
func (m *mirrored) checkDump() error {
	resp, err := http.Get("http://" + m.hub.addr + dumpURL)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	packed := 0
	for part := range strings.SplitSeq(string(text), `h:resources="`) {
		number, _, _ := strings.Cut(part, `"`)
		if n, err := strconv.Atoi(number); err == nil {
			packed += n
		}
	}
	if packed != m.n || strings.Contains(string(text), "missing") {
		return fmt.Errorf("of %d contents %d are in the dump: %s", m.n, packed, text)
	}
	return nil
}

// pack gets all contents and packs them in the plainest way.
func (m *mirrored) pack(name string) error {
	ctx, cancel := context.WithCancelCause(m.ctx)
	defer cancel(nil)
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer f.Close()
	out := bufio.NewWriter(f)
	z := zip.NewWriter(out)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: perHost}}
	defer client.CloseIdleConnections()
	numbers := make(chan int)
	var wg sync.WaitGroup
	var mu sync.Mutex // of z
	for range perHost {
		wg.Go(func() {
			for i := range numbers {
				text, err := fetchOne(client, m.base()+pathOf(i))
				if err == nil {
					mu.Lock()
					var w io.Writer
					if w, err = z.Create(pathOf(i)); err == nil {
						_, err = w.Write(text)
					}
					mu.Unlock()
				}
				if err != nil {
					cancel(err)
				}
			}
		})
	}
	for i := 0; i < m.n && ctx.Err() == nil; i++ {
		numbers <- i
	}
	close(numbers)
	wg.Wait()
	return cmp.Or(context.Cause(ctx), z.Close(), out.Flush())
}

func fetchOne(client *http.Client, url string) ([]byte, error) {
	resp, err := client.Get(url)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: %s", url, resp.Status)
	}
	return io.ReadAll(resp.Body)
}
