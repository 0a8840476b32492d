package ends

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// A repository is what the records of somebody else's server are: a file, which is replaced
// whenever they change.
type repository struct {
	t       *testing.T
	r       *rand.Rand
	file    string
	addr    string
	dir     string // has the contents of the resources, by the records' names
	records []*record
}

type record struct {
	ID        string `json:"_id"`
	Datestamp string `json:"datestamp"`
	Title     string `json:"title"`
	Deleted   bool   `json:"deleted,omitempty"`
}

const granularity = "2006-01-02T15:04:05Z"

func newRepository(t *testing.T, r *rand.Rand, n int) *repository {
	p := &repository{t: t, r: r, file: filepath.Join(t.TempDir(), "records"), addr: hubtest.FreePort(t), dir: t.TempDir()}
	begin := time.Now().UTC().Add(-1000 * time.Hour)
	for range n {
		p.put(p.create(), begin.Add(time.Duration(r.IntN(1e6))*time.Second))
	}
	p.write()
	return p
}

// program is the start of the server.
func (p *repository) program() func() *hubtest.Process {
	perl, err := exec.LookPath("perl")
	if err == nil {
		err = exec.Command(perl, "-e", `for (@INC) { exit 0 if -e "$_/Dancer/Plugin/Catmandu/OAI.pm" } exit 1`).Run()
	}
	if err != nil {
		p.t.Fatal("this test needs a repository: apt-get install libdancer-plugin-catmandu-oai-perl")
	}
	app, err := filepath.Abs("testdata/repository")
	if err != nil {
		p.t.Fatal(err)
	}
	start := program(p.t, nil, perl, "-I", app, filepath.Join(app, "app.pl"), p.addr[strings.IndexByte(p.addr, ':')+1:], p.file)
	return func() *hubtest.Process {
		running := start()
		hubtest.Until(p.t, "the repository listens", func() error {
			conn, err := net.Dial("tcp", p.addr)
			if err != nil {
				return fmt.Errorf("%w: %s", err, running.Stderr)
			}
			return conn.Close()
		})
		return running
	}
}

func (p *repository) create() *record {
	r := &record{ID: fmt.Sprint(len(p.records) + 1)}
	p.records = append(p.records, r)
	return r
}

// put gives a record, and the content of its resource, a new version.
func (p *repository) put(r *record, at time.Time) {
	r.Datestamp, r.Deleted = at.Format(granularity), false
	r.Title = fmt.Sprintf("Über & under <%d>", p.r.Uint64())
	if err := os.WriteFile(filepath.Join(p.dir, r.ID), []byte(r.Title), 0o644); err != nil {
		p.t.Error(err)
	}
}

// change changes some record, unless that had changed in the same second: the protocol
// could not tell.
func (p *repository) change() {
	now := time.Now().UTC()
	r := p.records[p.r.IntN(len(p.records))]
	if p.r.IntN(4) == 0 {
		r = p.create()
	}
	switch {
	case r.Datestamp >= now.Format(granularity):
	case p.r.IntN(4) == 0 && r.Datestamp != "" && !r.Deleted:
		r.Datestamp, r.Deleted = now.Format(granularity), true
		if err := os.Remove(filepath.Join(p.dir, r.ID)); err != nil {
			p.t.Error(err)
		}
	default:
		p.put(r, now)
	}
}

// write makes the records those that the server has.
func (p *repository) write() {
	var b bytes.Buffer
	for _, r := range p.records {
		line, err := json.Marshal(r)
		if err != nil {
			p.t.Error(err)
		}
		b.Write(append(line, '\n'))
	}
	err := os.WriteFile(p.file+"~", b.Bytes(), 0o644)
	if err == nil {
		err = os.Rename(p.file+"~", p.file)
	}
	if err != nil {
		p.t.Error(err)
	}
}

// start changes records in a goroutine of its own. done returns whether it has ended.
func (p *repository) start(steps int, pause time.Duration) (done func() bool) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for range steps {
			for range 1 + p.r.IntN(10) {
				p.change()
			}
			p.write()
			time.Sleep(time.Duration(p.r.Int64N(int64(2 * pause)))) // the pace of changes, not a wait for anything
		}
	}()
	p.t.Cleanup(func() { <-ended })
	return func() bool {
		select {
		case <-ended:
			return true
		default:
			return false
		}
	}
}

// TestRepository relays a repository that speaks OAI-PMH, of a program that somebody else
// wrote, to a hub, and mirrors the resources of its records. All of these are killed the
// whole time, the repository too.
func TestRepository(t *testing.T) {
	t.Parallel()
	c := choose(t)
	source := newRepository(t, c.of(1), size(120, 3_000))
	origin := newOrigin(t, c.of(2), source.dir)
	origin.unhashed = true // OAI-PMH has none
	h := hubtest.StartHub(t)

	var players cast
	players.play("repository", source.program())
	players.play("hub", hub(t, h))
	relay := players.play("relay", program(t, nil, hubtest.Rspublish, "relay", "-hub", h.URL, "-set", "papers", "-every", "1s", "-retry", "2s",
		"-max-delete", "all", "-oai", "-loc", origin.base()+"{local}", "-state", filepath.Join(t.TempDir(), "state.json"), "http://"+source.addr+"/oai"))
	hubtest.Until(t, "the first look is over", func() error {
		if !strings.Contains(relay.Stdout.String(), "relayed to papers: ") {
			return fmt.Errorf("%s%s", relay.Stdout, relay.Stderr)
		}
		return nil
	})
	m := &mirrored{dir: t.TempDir(), base: origin.base()}
	m.player = players.play("mirror", program(t, nil, hubtest.Rsmirror, m.args(h.Topic("papers"))...))
	defer m.explain(t)

	done := source.start(size(60, 600), size(100*time.Millisecond, 200*time.Millisecond))
	players.killed(t, c.of(4), size(400*time.Millisecond, time.Second), done)
	origin.mend()

	want := map[string]string{}              // the datestamps
	deleted, names := 0, map[string]string{} // the contents
	for _, r := range source.records {
		if r.Deleted {
			deleted++
			continue
		}
		want[origin.base()+r.ID], names[r.ID] = r.Datestamp, sum([]byte(r.Title))
	}
	hubtest.Until(t, "the hub has the records of the repository", func() error {
		relay.runs(t)
		return compare(held(t, h, "papers"), want)
	})
	hubtest.Until(t, "the mirror has their contents", func() error {
		m.runs(t)
		return m.differs(names)
	})
	m.settled(t)
	m.stop(t)
	m.proved(t, names)
	relay.stop(t)
	t.Logf("%d records, %d of them deleted; the hub was told %d changes; the origin answered %v", len(source.records), deleted, len(hubtest.Memory(t, h, "papers")), origin.served)
}

// held returns what a hub says that a set holds: lastmods by loc.
func held(t *testing.T, h *hubtest.Hub, set string) map[string]string {
	t.Helper()
	all := map[string]string{}
	next := h.URL + "/sets/" + set + "/resources"
	for next != "" {
		page := hubtest.Get[struct {
			Resources []struct{ Loc, Lastmod string }
			Next      string
		}](t, next, "Accept: application/json")
		for _, r := range page.Resources {
			all[r.Loc] = r.Lastmod
		}
		if len(page.Resources) == 0 {
			break
		}
		next = page.Next
	}
	return all
}
