//go:build linux

package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	hubclient "github.com/rshub/rshub/client"
	"github.com/rshub/rshub/resourcesync"
)

// perHost is how many requests at a time rsmirror sends to one host by default.
const perHost = 4

// serveContent is where contents come from: it makes that of each path.
func serveContent(w http.ResponseWriter, r *http.Request) {
	_, number, _ := strings.Cut(r.URL.Path, "file-")
	i, err := strconv.Atoi(strings.TrimSuffix(number, ".txt"))
	if err != nil || "/"+pathOf(i) != r.URL.Path {
		http.NotFound(w, r)
		return
	}
	body := contentOf(i)
	w.Header().Set("Content-Type", "text/plain")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body)
}

// A mirrored is a hub that names contents, and the server that has them.
type mirrored struct {
	*bench
	hub, origin *server
	program     string
	n           int
	done        func()
}

// mirrored publishes n contents, to a hub with further variables.
func (b *bench) mirrored(n int, env ...string) (m *mirrored, err error) {
	hub, stop, err := b.hubOn(env...)
	if err != nil {
		return nil, err
	}
	m = &mirrored{bench: b, hub: hub, n: n, done: stop}
	if m.origin, err = b.floor("origin"); err == nil {
		m.done = func() { m.origin.stop(); stop() }
		m.program, err = b.tool("rsmirror")
	}
	if err == nil {
		err = m.publish()
	}
	if err != nil {
		m.done()
		return nil, err
	}
	return m, nil
}

// publish tells the hub of all contents.
func (m *mirrored) publish() error {
	changes := make([]resourcesync.Change, m.n)
	for i := range changes {
		body := contentOf(i)
		length := int64(len(body))
		changes[i] = resourcesync.Change{
			Loc: m.base() + pathOf(i), Change: resourcesync.Created, Lastmod: time.Date(2024, 1, 1, 0, 0, i, 0, time.UTC),
			Hash: fmt.Sprintf("sha-256:%x", sha256.Sum256(body)), Length: &length, Type: "text/plain",
		}
	}
	if err := publishAll(m.ctx, m.hub, changes); err != nil {
		return err
	}
	c, err := hubclient.New("http://"+m.hub.addr, hubclient.Options{})
	if err != nil {
		return err
	}
	return c.Complete(m.ctx, benchSet, true)
}

func (m *mirrored) base() string { return "http://" + m.origin.addr + "/" }

// args are those of rsmirror.
func (m *mirrored) args(dir string, more ...string) []string {
	return append(more, "-q", "-strip", m.base(), "http://"+m.hub.addr+"/sets/"+benchSet+"/changes", dir)
}

// check checks a few of the files, and their number.
func (m *mirrored) check(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "part-*", "file-*"))
	if err == nil && len(files) != m.n {
		err = fmt.Errorf("there are %d files", len(files))
	}
	for i := 0; err == nil && i < m.n; i += 1 + m.n/10 {
		var text []byte
		if text, err = os.ReadFile(filepath.Join(dir, pathOf(i))); err == nil && !bytes.Equal(text, contentOf(i)) {
			err = fmt.Errorf("%s is wrong", pathOf(i))
		}
	}
	return err
}

// download gets all contents in the plainest way.
func (m *mirrored) download(dir string) error {
	ctx, cancel := context.WithCancelCause(m.ctx)
	defer cancel(nil)
	parts := filepath.Join(dir, "parts")
	if err := os.Mkdir(parts, 0o755); err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: perHost}}
	defer client.CloseIdleConnections()
	numbers := make(chan int)
	var wg sync.WaitGroup
	for range perHost {
		wg.Go(func() {
			for i := range numbers {
				if err := m.one(client, filepath.Join(parts, strconv.Itoa(i)), filepath.Join(dir, pathOf(i)), m.base()+pathOf(i)); err != nil {
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
	return context.Cause(ctx)
}

func (m *mirrored) one(client *http.Client, part, name, url string) error {
	resp, err := client.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", url, resp.Status)
	}
	f, err := os.Create(part)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, resp.Body)
	return cmp.Or(err, f.Close(), os.MkdirAll(filepath.Dir(name), 0o755), os.Rename(part, name))
}

// mirror measures a mirror from nothing.
func (b *bench) mirror(t *table) error {
	m, err := b.mirrored(b.contents)
	if err != nil {
		return err
	}
	defer m.done()
	// Directories are removed in the end, because some file systems make files slowly where
	// others were just removed.
	top, err := b.dir()
	if err != nil {
		return err
	}
	defer os.RemoveAll(top)
	into := func(get func(dir string) (usage, error)) func() (usage, error) {
		return func() (u usage, err error) {
			dir, err := os.MkdirTemp(top, "mirror-")
			if err != nil {
				return u, err
			}
			if u, err = get(dir); err == nil {
				err = m.check(dir)
			}
			return u, err
		}
	}
	servers := []*server{m.hub, m.origin}
	what := format(float64(m.n)) + " files of 1 KB"
	return alternate(b,
		into(func(dir string) (usage, error) {
			u, err := measure(func() error { return m.download(dir) }, servers...)
			u.cpu = u.own
			return u, err
		}),
		into(func(dir string) (usage, error) {
			r, err := b.run(servers, m.program, m.args(dir, "-once")...)
			return r.usage, err
		}),
		func(f, o usage) {
			n, others := float64(m.n), max(f.others, o.others)
			t.add(what, metric{name: "files/s", limit: 0.5, least: true, ratio: true}, n/f.seconds, n/o.seconds, others)
			t.add(what, metric{name: "CPU µs/file"}, 1e6*f.cpu/n, 1e6*o.cpu/n, others)
		})
}

// quietEnds measures both ends when nothing happens.
func (b *bench) quietEnds(t *table) error {
	m, err := b.mirrored(b.contents)
	if err != nil {
		return err
	}
	defer m.done()
	dir, err := b.dir()
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	what := "rsmirror, " + format(float64(m.n)) + " files"
	err = m.quiet(t, what, exec.Command(m.program, m.args(dir)...), m.hub, func() error {
		for m.check(dir) != nil {
			if err := m.pause(settle / 3); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	s, err := b.synced(b.files)
	if err != nil {
		return err
	}
	defer s.done()
	what = "rspublish watch, " + format(float64(b.files)) + " files"
	watch := exec.Command(s.program, append([]string{"watch"}, s.args...)...)
	out, in := io.Pipe()
	watch.Stdout = in
	defer out.Close()
	return m.quiet(t, what, watch, s.hub, func() error {
		_, err := bufio.NewReader(out).ReadString('\n') // it says so when it has synced
		return err
	})
}

// quiet starts a program, waits until it is ready and has nothing to do, and measures it
// and its hub.
func (m *mirrored) quiet(t *table, what string, cmd *exec.Cmd, hub *server, ready func() error) error {
	cmd.Env = plainEnv()
	s, err := spawn(cmd)
	if err != nil {
		return err
	}
	defer s.stop()
	if err := ready(); err != nil {
		return err
	}
	for _, each := range []*server{hub, s, m.origin} {
		if err := m.rest(each); err != nil {
			return err
		}
	}
	percent := metric{name: "% of a core", limit: 0.1}
	for range m.rounds {
		var took [3]time.Duration
		for _, sign := range []time.Duration{-1, 1} {
			for i, each := range []*server{m.origin, s, hub} {
				d, err := busyTime(each.pid)
				if err != nil {
					return err
				}
				took[i] += sign * d
			}
			if sign < 0 {
				if err := m.pause(m.sizes.quiet); err != nil {
					return err
				}
			}
		}
		share := func(i int) float64 { return 100 * took[i].Seconds() / m.sizes.quiet.Seconds() }
		t.add(what, percent, share(0), share(1), notMeasured)
		t.add("the hub of "+what, metric{name: "% of a core"}, share(0), share(2), notMeasured)
	}
	return nil
}

// pause waits.
func (b *bench) pause(d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-b.ctx.Done():
		return b.ctx.Err()
	}
}
