package dump

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// format is that of the files in stateDir.
const format = "1"

// A history is what is published: all documents can be made of it.
type history struct {
	Format string    `json:"format"`
	URL    string    `json:"url"`
	Begun  time.Time `json:"begun,omitzero"` // time of the newest run that began; no other run has it
	Runs   []run     `json:"runs"`           // that are kept, oldest first; the first has a Resource Dump
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

// The names of a run's files. kind is resourcedump or changedump, and n a number from 1.
func (r *run) document(kind string) string    { return r.name(kind) + ".xml" }
func (r *run) part(kind string, n int) string { return fmt.Sprintf("%s.part-%d.xml", r.name(kind), n) }
func (r *run) zip(kind string, n int) string  { return fmt.Sprintf("%s-%d.zip", r.name(kind), n) }
func (r *run) manifest(kind string, n int) string {
	return fmt.Sprintf("%s-%d.manifest.xml", r.name(kind), n)
}
func (r *run) changeList(n int) string { return fmt.Sprintf("%s-%d.xml", r.name("changelist"), n) }
func (r *run) unreadable() string      { return r.name("unreadable") + ".txt" }
func (r *run) state() string           { return stateDir + "/" + r.name("state") }
func (r *run) name(kind string) string { return kind + "-" + r.At.UTC().Format("20060102T150405Z") }

// until returns the time of the changes in package n, from 1. The changes of a run are said to
// have happened within the second before it, each package at a later time. So the packages
// are in order, no time is in two of them, and a Resource Dump of the run has them all.
func (r *run) until(n int) time.Time {
	return r.At.Add(-time.Second + time.Duration(n)*time.Microsecond)
}

// newest returns the newest run; nil if there is none.
func (h *history) newest() *run {
	if len(h.Runs) == 0 {
		return nil
	}
	return &h.Runs[len(h.Runs)-1]
}

// full returns when the newest Resource Dump was made.
func (h *history) full() (at time.Time) {
	for _, r := range h.Runs {
		if r.Full {
			at = r.At
		}
	}
	return at
}

// add adds a run, and forgets the runs before the oldest Resource Dump that is kept.
func (h *history) add(r run, keep int) {
	h.Runs = append(slices.Clone(h.Runs), r)
	for i, r := range slices.Backward(h.Runs) {
		if r.Full {
			keep--
		}
		if keep == 0 {
			h.Runs = h.Runs[i:]
			return
		}
	}
}

// write makes a history that of the place. From then on its runs are published, even if the
// process is killed before the documents say so.
func (p *place) write(h history) error {
	h.Format, h.URL = format, p.opts.URL
	b, err := json.Marshal(h)
	if err != nil {
		return err
	}
	if err := p.replace(historyFile, append(b, '\n')); err != nil {
		return err
	}
	p.history = h
	return nil
}
