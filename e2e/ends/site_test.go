package ends

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// A site writes the documents of ResourceSync for a tree, as a tool for static sites does
// that is run now and then.
type site struct {
	*origin
	dir    string
	r      *rand.Rand
	whole  bool // the datetimes have whole seconds
	parted bool // the Change Lists have an index

	files    map[string]stated // as of the newest run
	changes  []change
	rotated  []time.Time // when the Resource List was written, the last two times
	last     time.Time   // the datetime of the newest change
	rotation int
}

// A stated is what a site says of a file.
type stated struct {
	hash    string
	length  int
	lastmod time.Time
}

type change struct {
	name, kind string
	at         time.Time
	stated
}

func newSite(t *testing.T, o *origin, source *tree, r *rand.Rand) *site {
	s := &site{origin: o, dir: source.dir, r: r, whole: r.IntN(2) == 0, parted: r.IntN(2) == 0, files: map[string]stated{}}
	t.Logf("the datetimes have whole seconds: %v; the Change Lists have an index: %v", s.whole, s.parted)
	list := "changelist.xml"
	if s.parted {
		list = "changelists.xml"
	}
	o.publish("/.well-known/resourcesync", document("urlset", "description", "", o.entry("capabilitylist.xml", ` capability="capabilitylist"`)))
	o.publish("/capabilitylist.xml", document("urlset", "capabilitylist", "", o.entry("resourcelist.xml", ` capability="resourcelist"`), o.entry(list, ` capability="changelist"`)))
	return s
}

func document(root, capability, times string, entries ...string) []byte {
	return fmt.Appendf(nil, `<?xml version="1.0" encoding="UTF-8"?><%[1]s xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/"><rs:md capability="%[2]s"%[3]s/>%[4]s</%[1]s>`,
		root, capability, times, strings.Join(entries, "\n"))
}

func (o *origin) entry(path, md string) string {
	return `<url><loc>` + o.URL + "/" + path + `</loc><rs:md` + md + `/></url>`
}

// now is the time of the next change.
func (s *site) now() time.Time {
	now := time.Now().UTC().Truncate(time.Microsecond)
	if s.whole {
		return now.Truncate(time.Second)
	}
	if !now.After(s.last) {
		now = s.last.Add(time.Microsecond)
	}
	s.last = now
	return now
}

func stamp(t time.Time) string { return t.Format("2006-01-02T15:04:05.999999Z") }

func (s *site) describe(f stated, name, md string) string {
	loc := strings.NewReplacer("&", "&amp;", "'", "&apos;").Replace(s.loc(name))
	if f.hash == "" {
		return fmt.Sprintf(`<url><loc>%s</loc><rs:md%s/></url>`, loc, md)
	}
	return fmt.Sprintf(`<url><loc>%s</loc><lastmod>%s</lastmod><rs:md%s hash="sha-256:%s" length="%d"/></url>`, loc, stamp(f.lastmod), md, f.hash, f.length)
}

// run looks at the tree, and writes the documents.
func (s *site) run(rotate bool) error {
	began := time.Now().UTC().Truncate(time.Microsecond)
	if s.whole {
		began = began.Truncate(time.Second)
	}
	files, err := s.look()
	if err != nil {
		return err
	}
	for name, f := range files {
		switch old, had := s.files[name]; {
		case !had:
			s.changes = append(s.changes, change{name, "created", s.now(), f})
		case old.hash != f.hash:
			s.changes = append(s.changes, change{name, "updated", s.now(), f})
		}
	}
	for name := range s.files {
		if _, ok := files[name]; !ok {
			s.changes = append(s.changes, change{name, "deleted", s.now(), stated{}})
		}
	}
	s.files = files
	if rotate {
		s.rotated = append(s.rotated, began)
		s.rotated = s.rotated[max(0, len(s.rotated)-2):]
		s.rotation++
		s.changes = slices.DeleteFunc(s.changes, func(c change) bool { return c.at.Before(s.rotated[0]) })
	}
	if s.parted {
		s.writeParts()
	} else {
		s.publish("/changelist.xml", s.list(s.rotated[0], time.Time{}, s.changes))
	}
	if rotate {
		var all []string
		for name, f := range files {
			all = append(all, s.describe(f, name, ""))
		}
		s.publish("/resourcelist.xml", document("urlset", "resourcelist", fmt.Sprintf(` at="%s"`, stamp(began)), all...))
	}
	return nil
}

func (s *site) list(from, until time.Time, changes []change) []byte {
	var all []string
	for _, c := range changes {
		all = append(all, s.describe(c.stated, c.name, fmt.Sprintf(` change="%s" datetime="%s"`, c.kind, stamp(c.at))))
	}
	times := fmt.Sprintf(` from="%s"`, stamp(from))
	if !until.IsZero() {
		times += fmt.Sprintf(` until="%s"`, stamp(until))
	}
	return document("urlset", "changelist", times, all...)
}

// writeParts writes the changes between the last two Resource Lists as one closed Change
// List, and those after them as an open one.
func (s *site) writeParts() {
	newest := s.rotated[len(s.rotated)-1]
	n := slices.IndexFunc(s.changes, func(c change) bool { return !c.at.Before(newest) })
	if n < 0 {
		n = len(s.changes)
	}
	name := func(rotation int) string { return fmt.Sprintf("changelist-%d.xml", rotation) }
	item := func(rotation int, times string) string {
		return `<sitemap><loc>` + s.URL + "/" + name(rotation) + `</loc><rs:md capability="changelist"` + times + `/></sitemap>`
	}
	var parts []string
	if len(s.rotated) > 1 {
		s.publish("/"+name(s.rotation-1), s.list(s.rotated[0], newest, s.changes[:n]))
		parts = append(parts, item(s.rotation-1, fmt.Sprintf(` from="%s" until="%s"`, stamp(s.rotated[0]), stamp(newest))))
	}
	s.publish("/"+name(s.rotation), s.list(newest, time.Time{}, s.changes[n:]))
	parts = append(parts, item(s.rotation, fmt.Sprintf(` from="%s"`, stamp(newest))))
	s.publish("/changelists.xml", document("sitemapindex", "changelist", fmt.Sprintf(` from="%s"`, stamp(s.rotated[0])), parts...))
}

// look reads the tree. A file that comes or goes meanwhile is there or not.
func (s *site) look() (map[string]stated, error) {
	files := map[string]stated{}
	err := filepath.WalkDir(s.dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(p, "~") {
			return nil
		}
		name, err := filepath.Rel(s.dir, p)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		info, err := d.Info()
		if err != nil {
			return nil
		}
		if b, err := os.ReadFile(p); err == nil {
			files[name] = stated{sum(b), len(b), info.ModTime().UTC().Truncate(time.Microsecond)}
		}
		return nil
	})
	return files, err
}

// keep runs the site again and again until done, and then once more. A run that began before
// does not know of a file that changed after it had read that file.
func (s *site) keep(pace time.Duration, done func() bool) error {
	for last := false; !last; {
		last = done()
		if err := s.run(s.r.IntN(10) == 0); err != nil {
			return err
		}
		time.Sleep(time.Duration(s.r.Int64N(int64(2 * pace)))) // the pace of the site, not a wait for anything
	}
	return nil
}

// TestSite changes a directory at random. The site in it has no hub, but documents of
// ResourceSync. One mirror follows these documents, another one follows a hub to which
// they are relayed. All programs are killed the whole time.
func TestSite(t *testing.T) {
	t.Parallel()
	c := choose(t)
	source := newTree(t, c.of(1), size(200, 5_000))
	origin := newOrigin(t, c.of(2), source.dir)
	site := newSite(t, origin, source, c.of(3))
	if err := site.run(true); err != nil {
		t.Fatal(err)
	}

	var players cast
	h := hubtest.StartHub(t)
	players.play("hub", hub(t, h))
	relay := players.play("relay", program(t, nil, hubtest.Rspublish, "relay", "-hub", h.URL, "-set", "files", "-every", size("1s", "2s"),
		"-retry", "2s", "-max-delete", "all", "-state", filepath.Join(t.TempDir(), "state.json"), origin.URL+"/capabilitylist.xml"))
	hubtest.Until(t, "the first look is over", func() error {
		if !strings.Contains(relay.Stdout.String(), "relayed to files: ") {
			return fmt.Errorf("%s%s", relay.Stdout, relay.Stderr)
		}
		return nil
	})
	polled := &mirrored{dir: t.TempDir(), base: origin.base()}
	polled.player = players.play("mirror of the site", program(t, nil, hubtest.Rsmirror, polled.args(origin.URL, "-every", size("100ms", "2s"))...))
	pushed := &mirrored{dir: t.TempDir(), base: origin.base()}
	pushed.player = players.play("mirror of the hub", program(t, nil, hubtest.Rsmirror, pushed.args(h.Topic("files"))...))
	defer polled.explain(t)
	defer pushed.explain(t)

	done := source.start(size(400, 8_000), size(15*time.Millisecond, 10*time.Millisecond))
	written := make(chan error, 1)
	go func() { written <- site.keep(size(150*time.Millisecond, 1_000*time.Millisecond), done) }()
	players.killed(t, c.of(4), size(200*time.Millisecond, 1_000*time.Millisecond), done)
	origin.mend()
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	want := source.contents()
	began := time.Now()
	// Two looks that find nothing: the second one began after the site had ended. Before, the
	// relay may still do again what it did before it was killed.
	idle := func() int { return strings.Count(relay.Stdout.String(), "unchanged: ") }
	before := idle()
	hubtest.Until(t, "the relay has nothing to do any more", func() error {
		relay.runs(t)
		if n := idle() - before; n < 2 {
			return fmt.Errorf("%d looks have found nothing: %s%s", n, relay.Stdout, relay.Stderr)
		}
		return nil
	})
	for _, m := range []*mirrored{polled, pushed} {
		hubtest.Until(t, m.name+" is the directory", func() error {
			m.runs(t)
			relay.runs(t)
			return m.differs(want)
		})
		t.Logf("the %s is the directory after %v", m.name, time.Since(began).Round(time.Millisecond))
	}
	for _, m := range []*mirrored{polled, pushed} {
		m.settled(t)
		m.stop(t)
		m.proved(t, want)
	}
	relay.stop(t)
	t.Logf("the directory has %d files; changes made %v; %d Resource Lists; the hub was told %d changes; the origin answered %v",
		len(want), source.done, site.rotation, len(hubtest.Memory(t, h, "files")), origin.served)
}
