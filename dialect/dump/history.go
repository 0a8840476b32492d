package dump

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

// format is that of the files in stateDir.
const format = "1"

// A history is what is published: all documents can be made of it.
type history struct {
	Format string `json:"format"`
	URL    string `json:"url"`
	Runs   []run  `json:"runs"` // that are kept, oldest first; the first has a Resource Dump
}

// A run is what one run has published.
type run struct {
	At         time.Time `json:"at"`
	Completed  time.Time `json:"completed"`
	Full       bool      `json:"full,omitempty"`       // it has a Resource Dump
	Hole       bool      `json:"hole,omitempty"`       // resources of the run before count as present, though they were not listed
	Unreadable bool      `json:"unreadable,omitempty"` // it has a list of what could not be read
	From       time.Time `json:"from"`                 // its changes are later, and no earlier run has such
	Until      time.Time `json:"until"`                // its changes are not later; From: it has none
	Resources  []pack    `json:"resources,omitempty"`
	Changes    []pack    `json:"changes,omitempty"`
}

// A pack is a package: a ZIP file, and beside it a copy of its manifest. Its number in the
// run is its place, from 1.
type pack struct {
	Length    int64     `json:"length"`
	Hash      string    `json:"hash"`
	From      time.Time `json:"from,omitzero"`      // of changes
	Until     time.Time `json:"until,omitzero"`     // of changes
	At        time.Time `json:"at,omitzero"`        // of resources
	Completed time.Time `json:"completed,omitzero"` // of resources
}

// The names of a run's files. kind is resourcedump or changedump.
func (r *run) document(kind string) string { return kind + "-" + stamp(r.At) + ".xml" }
func (r *run) zip(kind string, number int) string {
	return fmt.Sprintf("%s-%s-%d.zip", kind, stamp(r.At), number)
}
func (r *run) manifest(kind string, n int) string {
	return fmt.Sprintf("%s-%s-%d.manifest.xml", kind, stamp(r.At), n)
}
func (r *run) changeList(number int) string {
	return fmt.Sprintf("changelist-%s-%d.xml", stamp(r.At), number)
}
func (r *run) unreadable() string { return "unreadable-" + stamp(r.At) + ".txt" }
func (r *run) state() string      { return stateDir + "/state-" + stamp(r.At) }
func partOf(kind string, at time.Time, n int) string {
	return fmt.Sprintf("%s-%s.part-%d.xml", kind, stamp(at), n)
}

// newest returns the newest run; nil if there is none.
func (h *history) newest() *run {
	if len(h.Runs) == 0 {
		return nil
	}
	return &h.Runs[len(h.Runs)-1]
}

// full returns the newest run with a Resource Dump; nil if there is none.
func (h *history) full() *run {
	for i := len(h.Runs) - 1; i >= 0; i-- {
		if h.Runs[i].Full {
			return &h.Runs[i]
		}
	}
	return nil
}

// prune forgets the runs before the oldest Resource Dump that is kept.
func (h *history) prune(keep int) {
	for i := len(h.Runs) - 1; i >= 0; i-- {
		if h.Runs[i].Full {
			if keep--; keep == 0 {
				h.Runs = h.Runs[i:]
				return
			}
		}
	}
}

// write makes a history that of the place. From then on its run is published, even if the
// process is killed before the documents say so.
func (p *place) write(h history) error {
	var b bytes.Buffer
	if err := json.NewEncoder(&b).Encode(h); err != nil {
		return err
	}
	for _, dir := range []string{".", stateDir} { // what it names is durable before
		if err := p.syncDir(dir); err != nil {
			return err
		}
	}
	if err := p.replace(historyFile, b.Bytes()); err != nil {
		return err
	}
	p.history = h
	return p.syncDir(stateDir)
}
