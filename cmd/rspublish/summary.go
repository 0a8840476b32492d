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

// changeCounts are what scripts read of published changes.
type changeCounts struct {
	Set     string `json:"set"`
	Created int    `json:"created"`
	Updated int    `json:"updated"`
	Deleted int    `json:"deleted"`
	Cursor  string `json:"cursor,omitempty"`
}

// newChangeCounts returns what a result says of published changes.
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

// A summary is what scripts read of a sync, or of a look of relay.
type summary struct {
	changeCounts
	How      relay.How `json:"how,omitempty"` // of relay
	Listed   uint64    `json:"listed"`
	Unknown  int       `json:"unknown"`
	Gaps     int       `json:"gaps"`
	Kept     int       `json:"kept"`
	Complete bool      `json:"complete"`
	DryRun   bool      `json:"dryRun,omitempty"`
}

func (c *config) newSummary(r *reconcile.Result) summary {
	return summary{changeCounts: c.newChangeCounts(r), Listed: r.Listed, Unknown: r.Unknown, Gaps: r.Gaps, Kept: r.Kept, Complete: r.Complete}
}

// summarize writes the one line about a look that scripts read.
func (r *relayRun) summarize(res *relay.Result) {
	s := r.cfg.newSummary(&res.Result)
	s.How = res.How
	switch {
	case r.cfg.json:
		printJSON(r.stdout, s)
	case r.cfg.quiet:
	case res.How == relay.Unchanged:
		fmt.Fprintf(r.stdout, "unchanged: %s\n", r.cfg.set)
	default:
		fmt.Fprintf(r.stdout, "relayed to %v", &s.changeCounts)
		if res.How == relay.Compared {
			fmt.Fprintf(r.stdout, "; compared %s", progress.Count(res.Listed, "resource"))
		}
		if res.Unknown > 0 {
			fmt.Fprintf(r.stdout, ", of which %d cannot be compared", res.Unknown)
		}
		if res.Kept > 0 {
			fmt.Fprintf(r.stdout, "; %d are missing at the source and not deleted yet", res.Kept)
		}
		fmt.Fprintln(r.stdout)
	}
}

// summarize writes the one line about a sync that scripts read. With -dry-run, standard
// output has the changes, so the line is for people.
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
		s.bar.Note("rspublish: %s cannot be compared, because list and hub say nothing of the same kind of them; they stay as they are (-unknown publishes them)", progress.Count(r.Unknown, "resource"))
	}
	if r.Kept > 0 {
		s.bar.Note("rspublish: %s that were not listed are not deleted, because the list has gaps", progress.Count(r.Kept, "resource"))
	}
	if s.tree != nil {
		printSkipped(&s.bar.Line, s.tree.Stats())
	}
}

// printPublished writes the line for changes that were published as they happened.
func (s *syncRun) printPublished(r *reconcile.Result) {
	d := s.cfg.newChangeCounts(r)
	switch {
	case s.cfg.json:
		printJSON(s.stdout, d)
	case !s.cfg.quiet:
		fmt.Fprintf(s.stdout, "published to %v, cursor %s\n", &d, d.Cursor)
	}
}

// printSkipped notes what a directory has that is not a resource.
func printSkipped(line *progress.Line, t directory.Stats) {
	if t.Links > 0 || t.Special > 0 {
		line.Note("rspublish: left out: %d symbolic links, %d devices, sockets and pipes", t.Links, t.Special)
	}
}

func printJSON(w io.Writer, v any) {
	b, _ := json.Marshal(v) // strings, numbers and booleans only
	fmt.Fprintf(w, "%s\n", b)
}
