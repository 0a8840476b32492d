package faults

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// A repository is a third-party OAI-PMH server with its records in a file, which is replaced
// whenever they change. Goroutines that change it fail the test with t.Error.
type repository struct {
	testing.TB
	r       *rand.Rand
	file    string
	addr    string
	dir     string // directory of the contents, named after the records
	records []*record
}

type record struct {
	ID        string `json:"_id"`
	Datestamp string `json:"datestamp"`
	Title     string `json:"title"`
	Deleted   bool   `json:"deleted,omitempty"`
}

const granularity = "2006-01-02T15:04:05Z"

func newRepository(t testing.TB, r *rand.Rand, n int) *repository {
	p := &repository{TB: t, r: r, file: filepath.Join(t.TempDir(), "records"), addr: hubtest.FreePort(t), dir: t.TempDir()}
	for range n {
		p.create(time.Now().UTC().Add(-time.Hour - upTo(r, 300*time.Hour)))
	}
	p.write()
	return p
}

// start starts the server.
func (p *repository) start() *hubtest.Process {
	app, err := filepath.Abs("testdata/repository")
	p.must(err)
	running := hubtest.Start(p, nil, nil, "perl", "-I", app, filepath.Join(app, "app.pl"), p.addr[strings.IndexByte(p.addr, ':')+1:], p.file)
	hubtest.Until(p, "the repository responds", func() error {
		if running.Exited() {
			p.Fatalf("this test needs a repository: apt-get install libdancer-plugin-catmandu-oai-perl\n%s", running.Stderr)
		}
		_, err := get("http://" + p.addr + "/oai?verb=Identify")
		return err
	})
	return running
}

// put gives a record and its resource a new version.
func (p *repository) put(r *record, at time.Time) {
	r.Datestamp, r.Deleted = at.Format(granularity), false
	r.Title = fmt.Sprintf("Über & under <%d>", p.r.Uint64())
	p.must(os.WriteFile(filepath.Join(p.dir, r.ID), []byte(r.Title), 0o644))
}

// create adds a record.
func (p *repository) create(at time.Time) {
	p.records = append(p.records, &record{ID: fmt.Sprint(len(p.records) + 1)})
	p.put(p.records[len(p.records)-1], at)
}

// change changes a random record, unless it has changed in the same second: the protocol could
// not show that.
func (p *repository) change() {
	now := time.Now().UTC()
	r := p.records[p.r.IntN(len(p.records))]
	switch n := p.r.IntN(4); {
	case n == 0:
		p.create(now)
	case r.Datestamp >= now.Format(granularity):
	case n == 1 && !r.Deleted:
		r.Datestamp, r.Deleted = now.Format(granularity), true
		p.must(os.Remove(filepath.Join(p.dir, r.ID)))
	default:
		p.put(r, now)
	}
}

// write replaces the records of the server.
func (p *repository) write() {
	var b bytes.Buffer
	out := json.NewEncoder(&b)
	for _, r := range p.records {
		p.must(out.Encode(r))
	}
	p.must(os.WriteFile(p.file+"~", b.Bytes(), 0o644))
	p.must(os.Rename(p.file+"~", p.file))
}

func (p *repository) must(err error) {
	if err != nil {
		p.Error(err)
	}
}

// changeRandomly changes records for a number of steps.
func (p *repository) changeRandomly(steps int, pause time.Duration) {
	for range steps {
		for range 1 + p.r.IntN(10) {
			p.change()
		}
		p.write()
		time.Sleep(upTo(p.r, 2*pause)) // pace of the changes, not a wait for a condition
	}
}
