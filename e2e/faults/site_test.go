package faults

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// A site writes the documents of ResourceSync for a directory, as a tool for static sites
// does that is run now and then: a Resource List, and an index of the Change Lists with what
// changed since the Resource Lists before it.
type site struct {
	*origin
	dir   string
	r     *rand.Rand
	whole bool // the datetimes have whole seconds

	files  map[string]string // hashes by name, as of the newest run
	lists  []changeList      // the last ones; each begins with a Resource List
	number int               // of the newest list
}

// A changeList is one Change List.
type changeList struct {
	from    string // its datetime
	entries []string
}

func newSite(o *origin, dir string, r *rand.Rand) *site {
	s := &site{origin: o, dir: dir, r: r, whole: r.IntN(2) == 0}
	s.write(".well-known/resourcesync", "urlset", `capability="description"`, s.item("url", "capabilitylist.xml", `capability="capabilitylist"`))
	s.write("capabilitylist.xml", "urlset", `capability="capabilitylist"`,
		s.item("url", "resourcelist.xml", `capability="resourcelist"`), s.item("url", "changelists.xml", `capability="changelist"`))
	return s
}

// write writes a document.
func (s *site) write(path, root, md string, entries ...string) {
	const spaces = `xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/"`
	s.publish("/"+path, fmt.Appendf(nil, `<%[1]s %[2]s><rs:md %[3]s/>%[4]s</%[1]s>`, root, spaces, md, strings.Join(entries, "\n")))
}

// item is an entry that says something of what is at a path.
func (s *site) item(element, path, md string) string {
	return fmt.Sprintf(`<%[1]s><loc>%[2]s/%[3]s</loc><rs:md %[4]s/></%[1]s>`, element, s.URL, strings.ReplaceAll(path, "&", "&amp;"), md)
}

// file is the entry of a file.
func (s *site) file(name, md string) string {
	if hash, ok := s.files[name]; ok {
		md += fmt.Sprintf(` hash="sha-256:%s"`, hash)
	}
	return s.item("url", "files/"+escape(name), md)
}

// now is the time, as the site says it.
func (s *site) now() string {
	now := time.Now().UTC()
	if s.whole {
		now = now.Truncate(time.Second)
	}
	return now.Format("2006-01-02T15:04:05.999999Z")
}

// run looks at the directory, and writes the documents. It reports whether something had
// changed.
func (s *site) run(rotate bool) (changed bool, err error) {
	began := s.now()
	if rotate {
		s.number++
		s.lists = append(s.lists, changeList{from: began})
		s.lists = s.lists[max(0, len(s.lists)-3):]
	}
	before := s.files
	if s.files, err = s.look(); err != nil {
		return false, err
	}
	newest := &s.lists[len(s.lists)-1]
	note := func(name, kind string) {
		changed = true
		newest.entries = append(newest.entries, s.file(name, fmt.Sprintf(`change="%s" datetime="%s"`, kind, s.now())))
	}
	for name, hash := range s.files {
		if old, had := before[name]; !had {
			note(name, "created")
		} else if old != hash {
			note(name, "updated")
		}
	}
	for name := range before {
		if _, ok := s.files[name]; !ok {
			note(name, "deleted")
		}
	}
	s.writeChanges()
	if rotate {
		var all []string
		for name := range s.files {
			all = append(all, s.file(name, ""))
		}
		s.write("resourcelist.xml", "urlset", fmt.Sprintf(`capability="resourcelist" at="%s"`, began), all...)
	}
	return changed, nil
}

func (s *site) writeChanges() {
	var index []string
	for i, l := range s.lists {
		path, md := fmt.Sprintf("changelist-%d.xml", s.number-len(s.lists)+i), fmt.Sprintf(`capability="changelist" from="%s"`, l.from)
		if i < len(s.lists)-1 {
			md += fmt.Sprintf(` until="%s"`, s.lists[i+1].from)
		}
		s.write(path, "urlset", md, l.entries...)
		index = append(index, s.item("sitemap", path, md))
	}
	s.write("changelists.xml", "sitemapindex", fmt.Sprintf(`capability="changelist" from="%s"`, s.lists[0].from), index...)
}

// look reads the directory. A file that comes or goes meanwhile is there or not.
func (s *site) look() (map[string]string, error) {
	files := map[string]string{}
	err := filepath.WalkDir(s.dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(p, "~") {
			return nil
		}
		name, err := filepath.Rel(s.dir, p)
		if err != nil {
			return err
		}
		if b, err := os.ReadFile(p); err == nil {
			files[filepath.ToSlash(name)] = sum(b)
		}
		return nil
	})
	return files, err
}

// keep runs the site again and again until done, and then until nothing changes any more. A
// look at all resources must not last for several Resource Lists: no mirror could catch up.
func (s *site) keep(pace, lasts time.Duration, done <-chan struct{}) error {
	rotated := time.Now()
	for over := false; ; {
		rotate := time.Since(rotated) > lasts
		if rotate {
			rotated = time.Now()
		}
		changed, err := s.run(rotate)
		if err != nil || over && !changed {
			return err
		}
		time.Sleep(upTo(s.r, 2*pace)) // the pace of the site, not a wait for anything
		select {
		case <-done:
			over = true
		default:
		}
	}
}
