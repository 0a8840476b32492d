//go:build linux

package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"
)

// filesPerDirectory of the directories that both ends work with.
const filesPerDirectory = 100

// pathOf returns the path of the i-th file.
func pathOf(i int) string {
	return fmt.Sprintf("part-%03d/file-%06d.txt", i/filesPerDirectory, i)
}

// contentOf returns the content of the i-th file: 1 KB.
func contentOf(i int) []byte {
	return bytes.Repeat(fmt.Appendf(nil, "%015d\n", i), 64)
}

// makeFiles creates n files in a new directory.
func makeFiles(dir string, n int) {
	for i := range n {
		name := filepath.Join(dir, pathOf(i))
		if i%filesPerDirectory == 0 {
			must(os.MkdirAll(filepath.Dir(name), 0o755))
		}
		must(os.WriteFile(name, contentOf(i), 0o644))
	}
}

// settled is slightly more than the age at which the hash of a file is cached.
const settled = 2500 * time.Millisecond

// A syncedHub is a hub that was synced with the files of a directory, and a server of these files.
type syncedHub struct {
	*bench
	n           int // files
	dir         string
	hub, origin *server
}

// synced makes a directory of n files, and syncs it with a hub.
func (b *bench) synced(n int) *syncedHub {
	s := &syncedHub{bench: b, n: n, dir: filepath.Join(b.data, "files")}
	makeFiles(s.dir, n)
	s.hub, s.origin = b.rshub(b.dir()), b.floor("files", s.dir)
	time.Sleep(settled)
	s.sync(n)
	return s
}

// base returns the URL at which the files are served.
func (s *syncedHub) base() string { return "http://" + s.origin.addr + "/" }

// sync runs rspublish sync, and checks its result.
func (s *syncedHub) sync(created int) sample {
	u, out := s.run(s.build("rspublish"), "sync", "-hub", "http://"+s.hub.addr, "-set", benchSet, "-base", s.base(),
		"-state", filepath.Join(s.data, "state"), "-json", s.dir)
	var did struct{ Listed, Created, Updated, Deleted int }
	must(json.Unmarshal(out, &did))
	if did.Listed != s.n || did.Created != created || did.Updated+did.Deleted > 0 {
		must(fmt.Errorf("sync: got %+v, want %d resources, %d of them new", did, s.n, created))
	}
	return u
}

// run runs a program until it exits. The sample has the CPU time of the program. The CPU time of
// the hub and the origin during the run does not count as time of other processes.
func (s *syncedHub) run(program string, args ...string) (u sample, out []byte) {
	cmd := exec.CommandContext(s.ctx, program, args...)
	var stdout, problems bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = plainEnv(), &stdout, &problems
	u = measure(func() {
		if err := cmd.Run(); err != nil {
			must(fmt.Errorf("%s: %w: %.500s", filepath.Base(program), err, problems.Bytes()))
		}
	}, s.hub, s.origin)
	u.cpu = (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
	u.others = max(0, u.others-u.cpu/u.seconds/float64(runtime.NumCPU()))
	return u, stdout.Bytes()
}

// sync measures a sync without changes.
func (b *bench) sync(t *table) {
	s, three := b.synced(b.files), aim{limit: 3, ratio: true}
	b.compare(t, count(s.n)+" files", []metric{
		metric{name: "CPU s", of: func(s sample) float64 { return s.cpu }}.should(three),
		metric{name: "s", of: func(s sample) float64 { return s.seconds }}.should(three),
	},
		func() sample { u, _ := s.run("find", s.dir, "-printf", "%y %s %T@ %C@ %i %P\n"); return u },
		func() sample { return s.sync(0) })
}

// mirror measures a mirror that starts empty.
func (b *bench) mirror(t *table) {
	s := b.synced(b.mirrored)
	into := func(get func(dir string) sample) func() sample {
		return func() sample {
			dir := b.dir()
			u := get(dir)
			u.count = float64(s.n)
			s.check(dir)
			return u
		}
	}
	b.compare(t, count(s.n)+" files of 1 KB",
		[]metric{perSecond("files").should(aim{limit: .5, least: true, ratio: true}), cpuEach("file")},
		into(func(dir string) sample {
			u := measure(func() { must(s.download(dir)) }, s.hub, s.origin)
			u.cpu = u.own
			return u
		}),
		into(func(dir string) sample {
			u, _ := s.run(s.build("rsmirror"), "-once", "-q", "-strip", s.base(), "http://"+s.hub.addr+setPath, dir)
			return u
		}))
}

// check checks a few of the files of a mirror, and their number.
func (s *syncedHub) check(dir string) {
	if files := have(filepath.Glob(filepath.Join(dir, "part-*", "file-*"))); len(files) != s.n {
		must(fmt.Errorf("got %d files, want %d", len(files), s.n))
	}
	for i := 0; i < s.n; i += 1 + s.n/10 {
		if text := have(os.ReadFile(filepath.Join(dir, pathOf(i)))); !bytes.Equal(text, contentOf(i)) {
			must(fmt.Errorf("%s has unexpected content", pathOf(i)))
		}
	}
}

// download gets all contents in the plainest way, with as many requests at a time as
// rsmirror sends to one host by default.
func (s *syncedHub) download(dir string) error {
	const perHost = 4
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: perHost}, Timeout: answerTime}
	defer client.CloseIdleConnections()
	return inParallel(perHost, s.n, func(i int) error {
		resp, err := client.Get(s.base() + pathOf(i))
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		part, name := filepath.Join(dir, fmt.Sprint("new-", i)), filepath.Join(dir, pathOf(i))
		f, err := os.Create(part)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, resp.Body)
		return cmp.Or(err, f.Close(), os.MkdirAll(filepath.Dir(name), 0o755), os.Rename(part, name))
	})
}
