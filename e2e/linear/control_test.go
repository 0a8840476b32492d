package linear

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// TestCorrupted records histories without faults, which must be possible, and corrupts
// each in the ways that matter. No corrupted history may be possible.
func TestCorrupted(t *testing.T) {
	c := hubtest.StartCluster(t, 2)
	urls := []string{c.Hubs[0].URL, c.Hubs[1].URL}
	tried := map[string]int{}
	for n := range 12 {
		r := &recorder{set: fmt.Sprint("set-", n), hubs: urls, http: &http.Client{}, begun: time.Now(), keeps: true, cursors: map[string]string{}, counts: map[string]int{}}
		r.run(rand.New(rand.NewPCG(1, uint64(n))), callers, things)
		if result := r.history.check(); result != porcupine.Ok || len(r.odd) > 0 {
			t.Fatalf("history %d: %s\n%s\n%s", n, result, r.odd, r.history)
		}
		for name, corrupt := range map[string]func(history, int) bool{"lost": lose, "reordered": reorder, "doubled": double, "lost at its end": cut, "position": move} {
			for i := range r.history {
				h := slices.Clone(r.history)
				if !corrupt(h, i) {
					continue
				}
				tried[name]++
				if result := h.check(); result != porcupine.Illegal {
					t.Errorf("history %d, %s in operation %d: %s\n%s", n, name, i, result, h)
				}
			}
		}
	}
	for _, name := range []string{"lost", "reordered", "doubled", "lost at its end", "position"} {
		if tried[name] == 0 {
			t.Errorf("no history could be corrupted so: %s", name)
		}
	}
	t.Log(tried)
}

// read returns what operation i read, if that is at least n entries.
func (h history) read(i, n int) []string {
	if entries := h[i].Output.(sight).entries; len(entries) >= n {
		return slices.Clone(entries)
	}
	return nil
}

// lose removes an entry from the middle of a page.
func lose(h history, i int) bool {
	entries := h.read(i, 2)
	if entries != nil {
		h[i].Output = sight{entries: slices.Delete(entries, 0, 1)}
	}
	return entries != nil
}

// cut removes the end of a page that was accepted before the page was asked for.
func cut(h history, i int) bool {
	entries := h.read(i, 1)
	if entries == nil {
		return false
	}
	last := entries[len(entries)-1]
	for _, o := range h {
		if in := o.Input.(timed); in.what == appends && slices.Contains(in.batch, last) && o.Return < h[i].Call {
			h[i].Output = sight{entries: entries[:len(entries)-1]}
			return true
		}
	}
	return false
}

func reorder(h history, i int) bool {
	entries := h.read(i, 2)
	if entries != nil {
		entries[0], entries[1] = entries[1], entries[0]
		h[i].Output = sight{entries: entries}
	}
	return entries != nil
}

func double(h history, i int) bool {
	entries := h.read(i, 1)
	if entries != nil {
		h[i].Output = sight{entries: append(entries, entries[len(entries)-1])}
	}
	return entries != nil
}

// move lets a publish say that its entries are one further back.
func move(h history, i int) bool {
	out := h[i].Output.(sight)
	out.first++
	h[i].Output = out
	return h[i].Input.(timed).what == appends
}

// TestModel holds the model against histories that are written by hand.
func TestModel(t *testing.T) {
	const unknown = -1
	type op struct {
		in         step
		out        sight
		call, back int64
	}
	add := func(entry string) step { return step{what: appends, batch: []string{entry}} }
	at := func(first int) sight { return sight{first: first} }
	saw := func(entries ...string) sight { return sight{entries: entries} }
	made := op{step{what: makes}, sight{}, 1, 2}
	a, b := op{add("a"), at(1), 3, 4}, op{add("b"), at(2), 5, 6}
	all := step{what: reads}
	late := func(what string, answered int64) step {
		return step{what: what, batch: []string{"x"}, title: "x", answered: answered}
	}
	for _, test := range []struct {
		name string
		ops  []op
		want porcupine.CheckResult
	}{
		{"all is well", []op{made, a, b, {all, saw("a", "b"), 7, 8}, {step{what: looks}, sight{head: 2}, 9, 10}}, porcupine.Ok},
		{"a page at the same time", []op{made, a, {add("b"), at(2), 5, 20}, {all, saw("a"), 7, 8}, {all, saw("a", "b"), 9, 10}}, porcupine.Ok},
		{"a page goes back", []op{made, a, {add("b"), at(2), 5, 20}, {all, saw("a", "b"), 7, 8}, {all, saw("a"), 9, 10}}, porcupine.Illegal},
		{"a page is behind", []op{made, a, b, {all, saw("a"), 7, 8}}, porcupine.Illegal},
		{"lost", []op{made, a, b, {all, saw("b"), 7, 8}}, porcupine.Illegal},
		{"reordered", []op{made, a, b, {all, saw("b", "a"), 7, 8}}, porcupine.Illegal},
		{"doubled", []op{made, a, b, {all, saw("a", "b", "b"), 7, 8}}, porcupine.Illegal},
		{"a key counts once", []op{made, a, {add("a"), sight{first: 1, replayed: true}, 5, 6}, {all, saw("a"), 7, 8}}, porcupine.Ok},
		{"a key counts twice", []op{made, a, {add("a"), at(2), 5, 6}}, porcupine.Illegal},
		{"in no set", []op{a}, porcupine.Illegal},
		{"a set of its own accord", []op{{all, saw("a"), 7, 8}}, porcupine.Illegal},

		{"deleted", []op{made, a, {step{what: deletes}, sight{}, 5, 6}, {step{what: gone, after: "a"}, sight{}, 7, 8}, {step{what: misses}, sight{}, 9, 10}}, porcupine.Ok},
		{"deleted and there", []op{made, a, {step{what: deletes}, sight{}, 5, 6}, {step{what: reads, after: "a"}, saw(), 7, 8}}, porcupine.Illegal},
		{"gone and there", []op{made, a, {step{what: gone, after: "a"}, sight{}, 7, 8}}, porcupine.Illegal},
		{"made anew", []op{made, a, {step{what: deletes}, sight{}, 5, 6}, {step{what: makes}, sight{}, 7, 8}, {add("c"), at(1), 9, 10}, {all, saw("c"), 11, 12}}, porcupine.Ok},
		{"made anew with what was", []op{made, a, {step{what: deletes}, sight{}, 5, 6}, {step{what: makes}, sight{}, 7, 8}, {add("c"), at(2), 9, 10}}, porcupine.Illegal},
		{"described", []op{made, {step{what: describes, title: "x"}, sight{}, 3, 4}, {step{what: looks}, sight{title: "x"}, 5, 6}}, porcupine.Ok},
		{"described in vain", []op{made, {step{what: describes, title: "x"}, sight{}, 3, 4}, {step{what: looks}, sight{}, 5, 6}}, porcupine.Illegal},

		{"an unknown publish came", []op{made, {late(appends, 4), sight{}, 3, unknown}, {all, saw(), 5, 6}, {all, saw("x"), 7, 8}}, porcupine.Ok},
		{"an unknown publish never came", []op{made, {late(appends, 4), sight{}, 3, unknown}, {all, saw(), 5, 6}}, porcupine.Ok},
		{"an unknown publish goes again", []op{made, {late(appends, 4), sight{}, 3, unknown}, {all, saw("x"), 5, 6}, {all, saw(), 7, 8}}, porcupine.Illegal},
		{"an unknown deletion comes late", []op{made, a, {late(deletes, 6), sight{}, 5, unknown}, {all, saw("a"), 7, 8}, {step{what: misses}, sight{}, 9, 10}}, porcupine.Ok},
		{"an unknown deletion hits the next set", []op{made, a, {late(deletes, 6), sight{}, 5, unknown}, {step{what: deletes}, sight{}, 7, 8},
			{step{what: makes}, sight{}, 9, 10}, {add("c"), at(1), 11, 12}, {all, saw("c"), 13, 14}, {step{what: misses}, sight{}, 15, 16}}, porcupine.Illegal},
		{"an unknown publish hits the next set", []op{made, a, {late(appends, 6), sight{}, 5, unknown}, {step{what: deletes}, sight{}, 7, 8},
			{step{what: makes}, sight{}, 9, 10}, {all, saw("x"), 13, 14}}, porcupine.Illegal},
		{"an unknown description makes the set anew", []op{made, a, {late(makes, 6), sight{}, 5, unknown}, {step{what: deletes}, sight{}, 7, 8},
			{step{what: looks}, sight{title: "x"}, 9, 10}}, porcupine.Illegal},
	} {
		t.Run(test.name, func(t *testing.T) {
			var h history
			for i, o := range test.ops {
				h = append(h, operation(i, o.call, o.back, o.in, o.out))
			}
			if got := h.check(); got != test.want {
				t.Errorf("%s, want %s\n%s", got, test.want, h)
			}
		})
	}
}
