package faults

import (
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// TestCorrupted records histories without faults, which must be possible, and corrupts each
// page of them in the ways that matter. No corrupted history may be possible.
func TestCorrupted(t *testing.T) {
	s := newStage(t, 1, 2, time.Second, nil)
	ways := map[string]func(entries []string) []string{
		"lost":      func(e []string) []string { return e[1:] },
		"reordered": func(e []string) []string { return append([]string{e[1], e[0]}, e[2:]...) },
		"doubled":   func(e []string) []string { return append(e, e[len(e)-1]) },
	}
	tried := map[string]int{}
	for n := range 12 {
		r := s.record(n, true)
		if result := r.history.check(); result != porcupine.Ok || len(r.odd) > 0 {
			t.Fatalf("history %d: %s\n%s\n%s", n, result, r.odd, r.history)
		}
		for name, corrupt := range ways {
			for i, o := range r.history {
				entries := slices.Clone(o.Output.(sight).entries)
				if len(entries) < 2 {
					continue
				}
				tried[name]++
				h := slices.Clone(r.history)
				h[i].Output = sight{entries: corrupt(entries)}
				if result := h.check(); result != porcupine.Illegal {
					t.Errorf("history %d, %s in operation %d: %s\n%s", n, name, i, result, h)
				}
			}
		}
	}
	if t.Log(tried); len(tried) < len(ways) {
		t.Error("no history could be corrupted in some way")
	}
}

// TestModel holds the model against histories that are written by hand: what no caller without
// faults sees.
func TestModel(t *testing.T) {
	type op struct {
		in         step
		out        sight
		call, back int64
	}
	add := func(entry string, first int, call, back int64) op {
		return op{step{what: appends, batch: []string{entry}}, sight{first: first}, call, back}
	}
	page := func(call, back int64, entries ...string) op {
		return op{step{what: reads}, sight{entries: entries}, call, back}
	}
	does := func(what string, call, back int64) op { return op{step{what: what, after: "a"}, sight{}, call, back} }
	late := func(what string, answered int64) op { // the hub does not know
		return op{step{what: what, batch: []string{"x"}, title: "x", answered: answered}, sight{}, answered - 1, 0}
	}
	made, a, b := does(makes, 1, 2), add("a", 1, 3, 4), add("b", 2, 5, 6)
	for _, test := range []struct {
		name string
		ops  []op
		want porcupine.CheckResult
	}{
		{"a page at the same time", []op{made, a, add("b", 2, 5, 20), page(7, 8, "a"), page(9, 10, "a", "b")}, porcupine.Ok},
		{"a page goes back", []op{made, a, add("b", 2, 5, 20), page(7, 8, "a", "b"), page(9, 10, "a")}, porcupine.Illegal},
		{"a page is behind", []op{made, a, b, page(7, 8, "a")}, porcupine.Illegal},
		{"at another position", []op{made, a, add("b", 3, 5, 6)}, porcupine.Illegal},
		{"a key counts once", []op{made, a, {step{what: appends, batch: []string{"a"}}, sight{first: 1, replayed: true}, 5, 6}, page(7, 8, "a")}, porcupine.Ok},
		{"a key counts twice", []op{made, a, add("a", 2, 5, 6)}, porcupine.Illegal},
		{"in no set", []op{a}, porcupine.Illegal},
		{"a set of its own accord", []op{page(7, 8, "a")}, porcupine.Illegal},
		{"deleted", []op{made, a, does(deletes, 5, 6), does(gone, 7, 8), does(misses, 9, 10)}, porcupine.Ok},
		{"deleted and there", []op{made, a, does(deletes, 5, 6), does(reads, 7, 8)}, porcupine.Illegal},
		{"gone and there", []op{made, a, does(gone, 7, 8)}, porcupine.Illegal},
		{"made anew", []op{made, a, does(deletes, 5, 6), does(makes, 7, 8), add("c", 1, 9, 10), page(11, 12, "c")}, porcupine.Ok},
		{"made anew with what was", []op{made, a, does(deletes, 5, 6), does(makes, 7, 8), add("c", 2, 9, 10)}, porcupine.Illegal},
		{"described in vain", []op{made, {step{what: describes, title: "x"}, sight{}, 3, 4}, {step{what: looks}, sight{}, 5, 6}}, porcupine.Illegal},

		{"an unknown publish came", []op{made, late(appends, 4), page(5, 6), page(7, 8, "x")}, porcupine.Ok},
		{"an unknown publish never came", []op{made, late(appends, 4), page(5, 6)}, porcupine.Ok},
		{"an unknown publish goes again", []op{made, late(appends, 4), page(5, 6, "x"), page(7, 8)}, porcupine.Illegal},
		{"an unknown deletion comes late", []op{made, a, late(deletes, 6), page(7, 8, "a"), does(misses, 9, 10)}, porcupine.Ok},
		{"an unknown deletion hits the next set", []op{made, a, late(deletes, 6), does(deletes, 7, 8),
			does(makes, 9, 10), add("c", 1, 11, 12), page(13, 14, "c"), does(misses, 15, 16)}, porcupine.Illegal},
		{"an unknown publish hits the next set", []op{made, a, late(appends, 6), does(deletes, 7, 8), does(makes, 9, 10), page(13, 14, "x")}, porcupine.Illegal},
		{"an unknown description makes the set anew", []op{made, a, late(makes, 6), does(deletes, 7, 8),
			{step{what: looks}, sight{title: "x"}, 9, 10}}, porcupine.Illegal},
	} {
		t.Run(test.name, func(t *testing.T) {
			var h history
			for i, o := range test.ops {
				h.add(i, o.call, o.back, o.in, o.out)
			}
			if got := h.check(); got != test.want {
				t.Errorf("%s, want %s\n%s", got, test.want, h)
			}
		})
	}
}
