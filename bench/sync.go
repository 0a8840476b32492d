//go:build linux

package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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

// makeFiles fills a directory with n files.
func makeFiles(dir string, n int) error {
	for i := range n {
		name := filepath.Join(dir, pathOf(i))
		if i%filesPerDirectory == 0 {
			if err := os.Mkdir(filepath.Dir(name), 0o755); err != nil {
				return err
			}
		}
		if err := os.WriteFile(name, contentOf(i), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// settled is how old a file has to be before its hash is remembered, and somewhat more.
const settled = 2500 * time.Millisecond

// A synced is a hub that has the files of a directory.
type synced struct {
	hub     *server
	dir     string
	program string
	args    []string // for sync and watch
	done    func()
}

// synced makes a directory of n files, and syncs it with a hub.
func (b *bench) synced(n int) (s *synced, err error) {
	hub, stop, err := b.hubOn()
	if err != nil {
		return nil, err
	}
	s = &synced{hub: hub, done: stop}
	top, err := b.dir()
	if err == nil {
		s.done = func() { stop(); _ = os.RemoveAll(top) }
		s.dir = filepath.Join(top, "files")
		err = cmp.Or(os.Mkdir(s.dir, 0o755), makeFiles(s.dir, n))
	}
	if err == nil {
		time.Sleep(settled)
		s.program, err = b.tool("rspublish")
	}
	if err == nil {
		s.args = []string{"-hub", "http://" + hub.addr, "-set", benchSet, "-base", "https://files.example.org/", "-state", filepath.Join(top, "state"), "-json", s.dir}
		err = s.sync(b, n, n)
	}
	if err != nil {
		s.done()
		return nil, err
	}
	return s, nil
}

// sync syncs, and checks what that did.
func (s *synced) sync(b *bench, listed, created int) error {
	r, err := b.run([]*server{s.hub}, s.program, append([]string{"sync"}, s.args...)...)
	if err != nil {
		return err
	}
	return r.counted(listed, created)
}

// counted checks what a program says that it has done.
func (r *runOf) counted(listed, created int) error {
	var did struct{ Listed, Created, Updated, Deleted int }
	if err := json.Unmarshal(r.out, &did); err != nil {
		return err
	}
	if did.Listed != listed || did.Created != created || did.Updated+did.Deleted > 0 {
		return fmt.Errorf("%+v of %d resources, of which %d were new", did, listed, created)
	}
	return nil
}

// sync measures a sync that finds nothing to do.
func (b *bench) sync(t *table) error {
	find, err := exec.LookPath("find")
	if err != nil {
		return skipped("there is no find")
	}
	s, err := b.synced(b.files)
	if err != nil {
		return err
	}
	defer s.done()
	servers := []*server{s.hub}
	what := format(float64(b.files)) + " files"
	return alternate(b,
		func() (runOf, error) { return b.run(servers, find, s.dir, "-printf", "%y %s %T@ %C@ %i %P\n") },
		func() (r runOf, err error) {
			if r, err = b.run(servers, s.program, append([]string{"sync"}, s.args...)...); err == nil {
				err = r.counted(b.files, 0)
			}
			return r, err
		},
		func(f, o runOf) {
			others := max(f.others, o.others)
			t.add(what, metric{name: "CPU s", limit: 3, ratio: true}, f.cpu, o.cpu, others)
			t.add(what, metric{name: "s", limit: 3, ratio: true}, f.seconds, o.seconds, others)
		})
}

// writeSitemap writes a sitemap of n URLs, and returns it.
func writeSitemap(name string, n int) ([]byte, error) {
	var text bytes.Buffer
	text.WriteString(`<?xml version="1.0" encoding="UTF-8"?>` + "\n" + `<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">` + "\n")
	at := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range n {
		fmt.Fprintf(&text, "  <url><loc>https://www.example.org/articles/%d/an-article-with-a-title-%d.html</loc><lastmod>%s</lastmod></url>\n",
			i%100, i, at.Add(time.Duration(i)*time.Minute).Format(time.RFC3339))
	}
	text.WriteString("</urlset>\n")
	return text.Bytes(), os.WriteFile(name, text.Bytes(), 0o644)
}

// decodeSitemap is the least that a program has to do with a sitemap.
func decodeSitemap(text []byte, n int) error {
	var list struct {
		URL []struct {
			Loc     string    `xml:"loc"`
			Lastmod time.Time `xml:"lastmod"`
		} `xml:"url"`
	}
	err := xml.NewDecoder(bufio.NewReader(bytes.NewReader(text))).Decode(&list)
	if err == nil && len(list.URL) != n {
		err = fmt.Errorf("the sitemap has %d URLs", len(list.URL))
	}
	return err
}

// relay measures looks at a sitemap.
func (b *bench) relay(t *table) error {
	dir, err := b.dir()
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	site := filepath.Join(dir, "site")
	if err := os.Mkdir(site, 0o755); err != nil {
		return err
	}
	text, err := writeSitemap(filepath.Join(site, "sitemap.xml"), b.listed)
	if err != nil {
		return err
	}
	source, err := b.floor("documents", site)
	if err != nil {
		return err
	}
	defer source.stop()
	hub, stop, err := b.hubOn()
	if err != nil {
		return err
	}
	defer stop()
	program, err := b.tool("rspublish")
	if err != nil {
		return err
	}
	size := format(float64(b.listed)) + " URLs"
	limit := metric{name: "CPU s", limit: 2}
	for round := range b.rounds {
		state := filepath.Join(dir, fmt.Sprint("state-", round))
		args := []string{"relay", "-once", "-json", "-hub", "http://" + hub.addr, "-set", fmt.Sprint(benchSet, round), "-state", state, "http://" + source.addr + "/sitemap.xml"}
		floor, err := measure(func() error { return decodeSitemap(text, b.listed) })
		if err != nil {
			return err
		}
		for _, look := range []struct {
			what    string
			how     string
			created int
			before  func() error
		}{
			{"first look, " + size, "compared", b.listed, func() error { return nil }},
			{"the server says unchanged", "unchanged", 0, func() error { return nil }},
			{"compared again, nothing new", "compared", 0, func() error { return os.Remove(state) }},
		} {
			if err := look.before(); err != nil {
				return err
			}
			r, err := b.run([]*server{hub, source}, program, args...)
			if err != nil {
				return err
			}
			if how := fmt.Sprintf(`"how":%q`, look.how); !strings.Contains(string(r.out), how) || !strings.Contains(string(r.out), fmt.Sprintf(`"created":%d,`, look.created)) {
				return fmt.Errorf("%s: %s", look.what, r.out)
			}
			others := max(floor.others, r.others)
			t.add(look.what, limit, floor.cpu, r.cpu, others)
			t.add(look.what, metric{name: "s"}, floor.seconds, r.seconds, others)
		}
	}
	return b.ctx.Err()
}
