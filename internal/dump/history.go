package dump

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// format is the version of the files in stateDir.
const format = "1"

// A history records the published runs. All documents are derived from it.
type history struct {
	Format  string    `json:"format"`
	URL     string    `json:"url"`
	Started time.Time `json:"begun,omitzero"` // time of the newest run that was started; no other run has it
	Runs    []run     `json:"runs"`           // retained runs, oldest first; the first has a Resource Dump
}

// A run records what one run published.
type run struct {
	At         time.Time     `json:"at"`
	Completed  time.Time     `json:"completed"`
	Full       bool          `json:"full,omitempty"`       // whether it has a Resource Dump
	Hole       bool          `json:"hole,omitempty"`       // whether unlisted resources of the previous run count as present
	Unreadable bool          `json:"unreadable,omitempty"` // whether it has a list of unreadable resources
	From       time.Time     `json:"from"`                 // all its changes are later, and those of earlier runs are not
	Until      time.Time     `json:"until"`                // none of its changes is later; equals From if it has no changes
	Resources  []packageInfo `json:"resources,omitempty"`
	Changes    []packageInfo `json:"changes,omitempty"`
}

// A packageInfo describes a package: a ZIP file, with a copy of its manifest next to it. Packages
// of a run are numbered from 1, in the order of the slice.
type packageInfo struct {
	Length    int64     `json:"length"`
	Hash      string    `json:"hash"`
	From      time.Time `json:"from,omitzero"`      // packages of changes only
	Until     time.Time `json:"until,omitzero"`     // packages of changes only
	At        time.Time `json:"at,omitzero"`        // packages of resources only
	Completed time.Time `json:"completed,omitzero"` // packages of resources only
}

// Names of a run's files. kind is resourcedump or changedump, and n counts from 1.
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

// changeTime returns the datetime of all changes in package n, counted from 1. The changes of a run
// are dated within the second before it, with a later time for each package. So packages are
// ordered, no two packages share a time, and a Resource Dump of the run includes all its changes.
func (r *run) changeTime(n int) time.Time {
	return r.At.Add(-time.Second + time.Duration(n)*time.Microsecond)
}

// newest returns the newest run, or nil if there is none.
func (h *history) newest() *run {
	if len(h.Runs) == 0 {
		return nil
	}
	return &h.Runs[len(h.Runs)-1]
}

// newestFull returns the time of the newest Resource Dump, or the zero time if there is none.
func (h *history) newestFull() (at time.Time) {
	for _, r := range h.Runs {
		if r.Full {
			at = r.At
		}
	}
	return at
}

// addRun appends a run, and drops the runs before the oldest of the newest keep Resource Dumps.
func (h *history) addRun(r run, keep int) {
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

// writeHistory replaces the history of the directory. From then on its runs are published, even if
// the process is killed before the documents are updated.
func (p *directory) writeHistory(h history) error {
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
