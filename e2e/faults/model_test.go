package faults

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// A set is what one set is at a moment, in the model.
type set struct {
	exists  bool
	changed int64  // when the call began that made the set, or deleted it
	title   string // of its description
	log     string // the entries, each with a blank behind it
}

func (s set) entries() []string { return strings.Fields(s.log) }

// What a step does. A request is one or more steps: to publish to a set that does not
// exist is to make it and then to append, and others see what is in between.
const (
	makes     = "make"     // the set, unless it exists
	appends   = "append"   // a batch, unless the log has it
	describes = "describe" // the set
	deletes   = "delete"   // the set, if it exists
	misses    = "miss"     // the set does not exist
	looks     = "look"     // at the set's title and head
	reads     = "read"     // the entries after one
	gone      = "gone"     // the log does not have the entry to read after
)

// A step is one thing that the memory does at once.
type step struct {
	what  string
	title string
	batch []string // the entries to append
	after string   // the entry to read after; empty: from the start

	// answered is when the hub answered that it does not know whether the step was
	// done; 0: it said that the step was done. The step may be done later. But it must
	// not touch a set that was made, or whose absence began, after the answer: the hub
	// did not mean that one.
	answered int64

	called int64 // when its request began
}

// A sight is what a step showed to the caller.
type sight struct {
	title    string
	head     int      // position of the newest entry
	first    int      // position of the first entry of the batch
	replayed bool     // the log had the batch before
	entries  []string // after the entry
}

// take returns the set after a step, and whether the step is possible and shows that.
func (s set) take(in step, out sight) (bool, set) {
	all, possible := s.entries(), true
	switch {
	case in.answered > 0:
		if s.changed > in.answered {
			return true, s
		}
	case in.what == appends:
		first := slices.Index(all, in.batch[0]) + 1
		known := first > 0
		if !known {
			first = len(all) + 1
		}
		possible = s.exists && out.replayed == known && out.first == first
	case in.what == describes:
		possible = s.exists
	case in.what == misses:
		possible = !s.exists
	case in.what == looks:
		possible = s.exists && s.title == out.title && len(all) == out.head
	case in.what == gone:
		possible = !slices.Contains(all, in.after)
	case in.what == reads:
		from := slices.Index(all, in.after) + 1
		possible = (from > 0 || in.after == "") && slices.Equal(all[from:], out.entries)
	}
	return possible, s.change(in)
}

// change returns the set after a step, if that changes it.
func (s set) change(in step) set {
	switch {
	case in.what == makes && !s.exists:
		return set{exists: true, changed: in.called, title: in.title}
	case in.what == deletes && s.exists:
		return set{changed: in.called}
	case in.what == describes && s.exists:
		s.title = in.title
	case in.what == appends && s.exists && !slices.Contains(s.entries(), in.batch[0]):
		s.log += strings.Join(in.batch, " ") + " "
	}
	return s
}

// A history is what the callers of one set did and saw.
type history []porcupine.Operation

// add adds a step. A step whose end is unknown may come at any time after its begin; a step
// that never came is one behind all others.
func (h *history) add(client int, called, returned int64, in step, out sight) {
	if in.called = called; in.answered > 0 {
		returned = math.MaxInt64
	}
	*h = append(*h, porcupine.Operation{ClientId: client, Input: in, Call: called, Output: out, Return: returned})
}

// check reports whether a single memory could have given the history, which does one thing
// after the other.
func (h history) check() porcupine.CheckResult {
	return porcupine.CheckOperationsTimeout(porcupine.Model{
		Init: func() any { return set{} },
		Step: func(state, in, out any) (bool, any) { return state.(set).take(in.(step), out.(sight)) },
	}, h, time.Minute)
}

// corrupted returns the history with one of its pages corrupted, in each way that matters: what
// was appended is lost, reordered or doubled. A history in which what was appended may be
// appended again has none, for it may be possible.
func (h history) corrupted() (all []history) {
	for i, o := range h {
		if in := o.Input.(step); in.what == deletes || in.answered > 0 {
			return nil
		}
		e := o.Output.(sight).entries
		if len(e) < 2 {
			continue
		}
		for _, page := range [][]string{e[1:], append([]string{e[1], e[0]}, e[2:]...), append(slices.Clone(e), e[len(e)-1])} {
			wrong := slices.Clone(h)
			wrong[i].Output = sight{entries: page}
			all = append(all, wrong)
		}
	}
	return all
}

// String returns the history for people, in the order in which the requests began.
func (h history) String() string {
	var b strings.Builder
	for _, o := range slices.SortedFunc(slices.Values(h), func(a, b porcupine.Operation) int { return int(a.Call - b.Call) }) {
		fmt.Fprintf(&b, "%+v\n", o)
	}
	return b.String()
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
