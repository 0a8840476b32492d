//go:build linux

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// A metric is what a figure says, and what it should be.
type metric struct {
	name  string
	limit float64 // the aim; 0: there is none
	least bool    // the aim is a minimum of the value, not a maximum
	ratio bool    // the aim is for the ratio to the floor
	over  bool    // the aim is for what comes on top of the floor
}

func (m metric) aim() string {
	if m.limit == 0 {
		return ""
	}
	s := "≤ "
	if m.least {
		s = "≥ "
	}
	s += format(m.limit)
	if m.ratio {
		s += " x"
	}
	if m.over {
		s += " more"
	}
	return s
}

// A row is one figure over all rounds. It is also what a line of JSON holds.
type row struct {
	Run                string // when the run began
	Part, Case, Figure string
	Aim                string    `json:",omitempty"`
	Floor, Rshub       []float64 // by round
	Others             float64   // share of the machine that others took, median

	metric metric
	others []float64
}

// A table gathers the figures of a part.
type table struct {
	run, part string
	aimless   bool      // the run is too small for aims
	heads     [2]string // of the two columns; empty: floor, rshub
	rows      []*row
}

// notMeasured stands for the share of other processes, for a figure that does not depend on it.
const notMeasured = -1

// add adds a round's figure for a case.
func (t *table) add(what string, m metric, floor, ours, others float64) {
	if t.aimless {
		m.limit = 0
	}
	i := slices.IndexFunc(t.rows, func(r *row) bool { return r.Case == what && r.metric == m })
	if i < 0 {
		i = len(t.rows)
		t.rows = append(t.rows, &row{Run: t.run, Part: t.part, Case: what, Figure: m.name, Aim: m.aim(), metric: m})
	}
	r := t.rows[i]
	r.Floor, r.Rshub, r.others = append(r.Floor, floor), append(r.Rshub, ours), append(r.others, others)
	r.Others = median(r.others)
}

// verdict says whether the aim is met.
func (r *row) verdict() string {
	if r.metric.limit == 0 {
		return ""
	}
	v := median(r.Rshub)
	if r.metric.ratio {
		v = median(ratios(r.Floor, r.Rshub))
	}
	if r.metric.over {
		v -= median(r.Floor)
	}
	if v > r.metric.limit == r.metric.least || v == r.metric.limit {
		return "met"
	}
	return "MISSED"
}

// print writes the table for people. The ratio is the median over rounds of
// the ratio in a round, with the lowest and the highest.
func (t *table) print(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintf(tw, "  case\tfigure\t%s\t%s\tratio\t(range)\taim\t\tothers\n", cmp.Or(t.heads[0], "floor"), cmp.Or(t.heads[1], "rshub"))
	last := ""
	for _, r := range t.rows {
		what := r.Case
		if what == last {
			what = ""
		}
		last = r.Case
		ratio, spread := "", ""
		if all := ratios(r.Floor, r.Rshub); len(all) > 0 {
			ratio = format(median(all))
			spread = "(" + format(slices.Min(all)) + "–" + format(slices.Max(all)) + ")"
		}
		others := ""
		if r.Others != notMeasured {
			others = fmt.Sprintf("%.0f %%", 100*r.Others)
		}
		fmt.Fprintf(tw, "  %s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", what, r.Figure,
			format(median(r.Floor)), format(median(r.Rshub)), ratio, spread, r.Aim, r.verdict(), others)
	}
	return tw.Flush()
}

// writeJSON writes each row as a line of JSON.
func (t *table) writeJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	for _, r := range t.rows {
		if err := e.Encode(r); err != nil {
			return err
		}
	}
	return nil
}
