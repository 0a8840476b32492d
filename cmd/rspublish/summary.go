package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/rshub/rshub/internal/progress"
	"github.com/rshub/rshub/internal/source/directory"
	"github.com/rshub/rshub/internal/source/reconcile"
	"github.com/rshub/rshub/internal/source/relay"
)

// changeCounts is the JSON summary of published changes. Scripts rely on it.
type changeCounts struct {
	Set     string `json:"set"`
	Created int    `json:"created"`
	Updated int    `json:"updated"`
	Deleted int    `json:"deleted"`
	Cursor  string `json:"cursor,omitempty"`
}

// newChangeCounts returns the changeCounts of r.
func (c *config) newChangeCounts(r *reconcile.Result) changeCounts {
	d := changeCounts{Set: c.set, Created: r.Created, Updated: r.Updated, Deleted: r.Deleted}
	if !r.Cursor.IsZero() {
		d.Cursor = r.Cursor.String()
	}
	return d
}

func (d *changeCounts) String() string {
	return fmt.Sprintf("%s: %d created, %d updated, %d deleted", d.Set, d.Created, d.Updated, d.Deleted)
}

// A summary is the JSON summary of a sync, or of a poll of relay. Scripts rely on it.
type summary struct {
	changeCounts
	How      relay.Method `json:"how,omitempty"` // only for relay
	Listed   uint64       `json:"listed"`
	Unknown  int          `json:"unknown"`
	Gaps     int          `json:"gaps"`
	Kept     int          `json:"kept"`
	Complete bool         `json:"complete"`
	DryRun   bool         `json:"dryRun,omitempty"`
}

// newSummary returns the summary of r.
func (c *config) newSummary(r *reconcile.Result) summary {
	return summary{changeCounts: c.newChangeCounts(r), Listed: r.Listed, Unknown: r.Unknown, Gaps: r.Gaps, Kept: r.Kept, Complete: r.Complete}
}

// summarize prints the line of a poll. Scripts rely on it.
func (r *relayRun) summarize(res *relay.Result) {
	s := r.cfg.newSummary(&res.Result)
	s.How = res.Method
	switch {
	case r.cfg.json:
		printJSON(r.stdout, s)
	case r.cfg.quiet:
	case res.Method == relay.Unchanged:
		fmt.Fprintf(r.stdout, "unchanged: %s\n", r.cfg.set)
	default:
		fmt.Fprintf(r.stdout, "relayed to %v", &s.changeCounts)
		if res.Method == relay.Compared {
			fmt.Fprintf(r.stdout, "; compared %s", progress.Count(res.Listed, "resource"))
		}
		if res.Unknown > 0 {
			fmt.Fprintf(r.stdout, " (%d cannot be compared)", res.Unknown)
		}
		if res.Kept > 0 {
			fmt.Fprintf(r.stdout, "; %d missing at the source are not deleted yet", res.Kept)
		}
		fmt.Fprintln(r.stdout)
	}
}

// summarize prints the line of a sync. Scripts rely on it, except with -dry-run: standard output
// then has the changes, and the line is for people.
func (s *syncRun) summarize(r *reconcile.Result) {
	w, verb := s.stdout, "synced"
	if s.cfg.dryRun {
		w, verb = s.stderr, "would sync"
	}
	sum := s.cfg.newSummary(r)
	sum.DryRun = s.cfg.dryRun
	switch {
	case s.cfg.json:
		printJSON(w, sum)
	case !s.cfg.quiet:
		fmt.Fprintf(w, "%s %v of %s", verb, &sum.changeCounts, progress.Count(r.Listed, "resource"))
		if sum.Cursor != "" && !s.cfg.dryRun {
			fmt.Fprintf(w, ", cursor %s", sum.Cursor)
		}
		fmt.Fprintln(w)
	}
	if r.Unknown > 0 {
		s.bar.Note("rspublish: %s cannot be compared, because list and hub have no comparable metadata; they are left unchanged, unless -unknown is used", progress.Count(r.Unknown, "resource"))
	}
	if r.Kept > 0 {
		s.bar.Note("rspublish: %s missing in the list are not deleted, because the list has gaps", progress.Count(r.Kept, "resource"))
	}
	if s.tree != nil {
		printSkipped(&s.bar.Line, s.tree.Stats())
	}
}

// printPublished prints the line for changes that watch published as they happened.
func (s *syncRun) printPublished(r *reconcile.Result) {
	d := s.cfg.newChangeCounts(r)
	switch {
	case s.cfg.json:
		printJSON(s.stdout, d)
	case !s.cfg.quiet:
		fmt.Fprintf(s.stdout, "published to %v, cursor %s\n", &d, d.Cursor)
	}
}

// printSkipped prints the numbers of files in a directory that are not resources.
func printSkipped(line *progress.Line, t directory.Stats) {
	if t.Links > 0 || t.Special > 0 {
		line.Note("rspublish: skipped %d symbolic links, and %d devices, sockets and pipes", t.Links, t.Special)
	}
}

func printJSON(w io.Writer, v any) {
	b, _ := json.Marshal(v) // strings, numbers and booleans only
	fmt.Fprintf(w, "%s\n", b)
}
