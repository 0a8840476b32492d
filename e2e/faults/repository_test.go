package faults

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
// whenever they change. Whoever changes it fails the test with t.Error.
type repository struct {
	testing.TB
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

func newRepository(t testing.TB, r *rand.Rand, n int) *repository {
	p := &repository{TB: t, r: r, file: filepath.Join(t.TempDir(), "records"), addr: hubtest.FreePort(t), dir: t.TempDir()}
	for range n {
		p.create(time.Now().UTC().Add(-time.Hour - upTo(r, 300*time.Hour)))
	}
	p.write()
	return p
}

// start starts the server, which speaks OAI-PMH.
func (p *repository) start() *hubtest.Process {
	perl, err := exec.LookPath("perl")
	if err == nil {
		err = exec.Command(perl, "-e", `for (@INC) { exit 0 if -e "$_/Dancer/Plugin/Catmandu/OAI.pm" } exit 1`).Run()
	}
	if err != nil {
		p.Fatal("this test needs a repository: apt-get install libdancer-plugin-catmandu-oai-perl")
	}
	app, err := filepath.Abs("testdata/repository")
	if err != nil {
		p.Fatal(err)
	}
	running := hubtest.Start(p, nil, nil, perl, "-I", app, filepath.Join(app, "app.pl"), p.addr[strings.IndexByte(p.addr, ':')+1:], p.file)
	hubtest.Until(p, "the repository listens", func() error {
		conn, err := net.Dial("tcp", p.addr)
		if err != nil {
			return fmt.Errorf("%w: %s", err, running.Stderr)
		}
		return conn.Close()
	})
	return running
}

// put gives a record, and the content of its resource, a new version.
func (p *repository) put(r *record, at time.Time) {
	r.Datestamp, r.Deleted = at.Format(granularity), false
	r.Title = fmt.Sprintf("Über & under <%d>", p.r.Uint64())
	if err := os.WriteFile(filepath.Join(p.dir, r.ID), []byte(r.Title), 0o644); err != nil {
		p.Error(err)
	}
}

// create adds a record.
func (p *repository) create(at time.Time) {
	p.records = append(p.records, &record{ID: fmt.Sprint(len(p.records) + 1)})
	p.put(p.records[len(p.records)-1], at)
}

// change changes some record, unless that had changed in the same second: the protocol
// could not tell.
func (p *repository) change() {
	now := time.Now().UTC()
	r := p.records[p.r.IntN(len(p.records))]
	switch n := p.r.IntN(4); {
	case n == 0:
		p.create(now)
	case r.Datestamp >= now.Format(granularity):
	case n == 1 && !r.Deleted:
		r.Datestamp, r.Deleted = now.Format(granularity), true
		if err := os.Remove(filepath.Join(p.dir, r.ID)); err != nil {
			p.Error(err)
		}
	default:
		p.put(r, now)
	}
}

// write makes the records those that the server has.
func (p *repository) write() {
	var b bytes.Buffer
	out := json.NewEncoder(&b)
	for _, r := range p.records {
		_ = out.Encode(r) // a record has only strings
	}
	err := os.WriteFile(p.file+"~", b.Bytes(), 0o644)
	if err == nil {
		err = os.Rename(p.file+"~", p.file)
	}
	if err != nil {
		p.Error(err)
	}
}

// keep changes records for some steps.
func (p *repository) keep(steps int, pause time.Duration) {
	for range steps {
		for range 1 + p.r.IntN(10) {
			p.change()
		}
		p.write()
		time.Sleep(upTo(p.r, 2*pause)) // the pace of changes, not a wait for anything
	}
}
