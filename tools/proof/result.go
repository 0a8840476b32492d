package main

import (
	"cmp"
	"fmt"
	"io"
	"text/tabwriter"
)

// A result is what a part came to.
type result struct {
	Part     string   `json:"part"`
	Revision string   `json:"revision"` // the commit; empty if the tree had other changes
	Seconds  float64  `json:"seconds"`
	Tests    int      `json:"tests"`
	Red      string   `json:"red,omitempty"`
	Flaky    []string `json:"flaky,omitempty"`
	slow     []string
}

func (r *result) add(read *reading) {
	r.Tests += read.tests
	r.Flaky = append(r.Flaky, read.flaky...)
	r.slow = append(r.slow, read.slow...)
}

// table prints what each part took, and what passed only when it was run once more.
func table(w io.Writer, results []result) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "\npart\tseconds\ttests\tred\n")
	var sum result
	for _, r := range results {
		fmt.Fprintf(t, "%s\t%.0f\t%d\t%s\n", r.Part, r.Seconds, r.Tests, cmp.Or(r.Red, "-"))
		sum.Seconds += r.Seconds
		sum.Tests += r.Tests
	}
	fmt.Fprintf(t, "together\t%.0f\t%d\t\n", sum.Seconds, sum.Tests)
	_ = t.Flush()
	for _, r := range results {
		for _, s := range r.slow {
			fmt.Fprintln(w, "SLOW", s)
		}
	}
	for _, r := range results {
		for _, name := range r.Flaky {
			fmt.Fprintln(w, "FLAKY", name)
		}
	}
}
