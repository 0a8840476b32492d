//go:build linux

package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"text/tabwriter"
)

// String describes the aim.
func (a aim) String() string {
	switch s := format(a.limit); {
	case a.limit == 0:
		return ""
	case a.least && a.ratio:
		return "≥ " + s + " x"
	case a.least:
		return "≥ " + s
	case a.ratio:
		return "≤ " + s + " x"
	case a.over:
		return "≤ " + s + " more"
	default:
		return "≤ " + s
	}
}

// A row is one figure of a case, with its values by round.
type row struct {
	what, figure        string
	aim                 aim
	floor, ours, others []float64
}

// A table collects the figures of a part.
type table struct {
	aimless bool
	heads   [2]string
	rows    []*row
}

// add adds the samples of a round to a case.
func (t *table) add(what string, m metric, floor, ours sample) {
	if t.aimless {
		m.aim = aim{}
	}
	i := slices.IndexFunc(t.rows, func(r *row) bool { return r.what == what && r.figure == m.name })
	if i < 0 {
		i = len(t.rows)
		t.rows = append(t.rows, &row{what: what, figure: m.name, aim: m.aim})
	}
	r := t.rows[i]
	r.floor, r.ours = append(r.floor, m.of(floor)), append(r.ours, m.of(ours))
	r.others = append(r.others, max(floor.others, ours.others))
}

// verdict describes whether the aim is met.
func (r *row) verdict() string {
	v := median(r.ours)
	if r.aim.ratio {
		v = median(ratios(r.floor, r.ours))
	}
	if r.aim.over {
		v -= median(r.floor)
	}
	switch {
	case r.aim.limit == 0:
		return ""
	case v > r.aim.limit == r.aim.least || v == r.aim.limit:
		return "met"
	default:
		return "MISSED"
	}
}

// print writes the table as text. The ratio is the median of the ratios of all rounds, with the
// lowest and the highest.
func (t *table) print(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintf(tw, "  case\tfigure\t%s\t%s\tratio\t(range)\taim\t\tothers\n", cmp.Or(t.heads[0], "floor"), cmp.Or(t.heads[1], "rshub"))
	last := ""
	for _, r := range t.rows {
		what := r.what
		if what == last {
			what = ""
		}
		last = r.what
		ratio, spread, others := "", "", ""
		if all := ratios(r.floor, r.ours); len(all) > 0 {
			ratio = format(median(all))
			spread = "(" + format(slices.Min(all)) + "–" + format(slices.Max(all)) + ")"
		}
		if share := median(r.others); share > 0 {
			others = fmt.Sprintf("%.0f %%", 100*share)
		}
		fmt.Fprintf(tw, "  %s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", what, r.figure,
			format(median(r.floor)), format(median(r.ours)), ratio, spread, r.aim, r.verdict(), others)
	}
	return tw.Flush()
}

// median returns the median of values, or 0 if there are none.
func median(values []float64) float64 {
	n := len(values)
	if n == 0 {
		return 0
	}
	v := slices.Sorted(slices.Values(values))
	return (v[(n-1)/2] + v[n/2]) / 2
}

// quantile returns the q-quantile of sorted values.
func quantile(sorted []uint32, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return float64(sorted[min(int(q*float64(len(sorted))), len(sorted)-1)])
}

// ratios returns ours[i] / floor[i], without those whose floor is zero.
func ratios(floor, ours []float64) (r []float64) {
	for i := range min(len(floor), len(ours)) {
		if floor[i] > 0 {
			r = append(r, ours[i]/floor[i])
		}
	}
	return r
}

// format formats a number with three significant digits and commas as thousands separators.
func format(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v < 1:
		return strconv.FormatFloat(v, 'f', 3, 64)
	case v < 10:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case v < 100:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case v >= 10_000: // more digits than three say nothing here
		v = float64(int64(v+50) / 100 * 100)
	}
	return count(int(v + .5))
}

// count formats n with commas as thousands separators.
func count(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
