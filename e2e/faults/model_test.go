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

// A set is the state of a set in the model.
type set struct {
	exists  bool
	changed int64  // start of the call that created or deleted the set
	title   string // title of its description
	log     string // entries, each followed by a space
}

func (s set) entries() []string { return strings.Fields(s.log) }

// The operations of steps. A request has one or more steps: publishing to a nonexistent set
// creates it and then stepAppend, and other callers see the state in between.
const (
	stepCreate   = "create"   // the set, unless it exists
	stepAppend   = "append"   // a batch, unless the log has it
	stepDescribe = "describe" // the set
	stepDelete   = "delete"   // the set, if it exists
	stepMiss     = "miss"     // finds no set
	stepView     = "view"     // the title and head of the set
	stepRead     = "read"     // the entries after an entry
	stepGone     = "gone"     // finds that the log does not have the entry to read after
)

// A step is an operation that the memory executes atomically.
type step struct {
	what  string
	title string
	batch []string // entries to append
	after string   // entry to read after; empty means from the start

	// answered is the time of the response that the execution is unknown, or 0 if the
	// response confirmed it. The step may be executed later. But it must not affect a set
	// that was created or deleted after the response: the request was not for that one.
	answered int64

	called int64 // start of the request
}

// A result is the result of a step.
type result struct {
	title    string
	head     int      // position of the newest entry
	first    int      // position of the first entry of the batch
	replayed bool     // whether the log already had the batch
	entries  []string // entries after the entry
}

// apply returns the set after a step, and whether the step is possible with that result.
func (s set) apply(in step, out result) (bool, set) {
	all, possible := s.entries(), true
	switch {
	case in.answered > 0:
		if s.changed > in.answered {
			return true, s
		}
	case in.what == stepAppend:
		first := slices.Index(all, in.batch[0]) + 1
		known := first > 0
		if !known {
			first = len(all) + 1
		}
		possible = s.exists && out.replayed == known && out.first == first
	case in.what == stepDescribe:
		possible = s.exists
	case in.what == stepMiss:
		possible = !s.exists
	case in.what == stepView:
		possible = s.exists && s.title == out.title && len(all) == out.head
	case in.what == stepGone:
		possible = !slices.Contains(all, in.after)
	case in.what == stepRead:
		from := slices.Index(all, in.after) + 1
		possible = (from > 0 || in.after == "") && slices.Equal(all[from:], out.entries)
	}
	return possible, s.change(in)
}

// change returns the set after a step.
func (s set) change(in step) set {
	switch {
	case in.what == stepCreate && !s.exists:
		return set{exists: true, changed: in.called, title: in.title}
	case in.what == stepDelete && s.exists:
		return set{changed: in.called}
	case in.what == stepDescribe && s.exists:
		s.title = in.title
	case in.what == stepAppend && s.exists && !slices.Contains(s.entries(), in.batch[0]):
		s.log += strings.Join(in.batch, " ") + " "
	}
	return s
}

// A history has the steps of the callers of one set, with their results.
type history []porcupine.Operation

// add adds a step. A step with an unknown end may be executed at any time after its start; a
// step that was never executed comes after all others.
func (h *history) add(client int, called, returned int64, in step, out result) {
	if in.called = called; in.answered > 0 {
		returned = math.MaxInt64
	}
	*h = append(*h, porcupine.Operation{ClientId: client, Input: in, Call: called, Output: out, Return: returned})
}

// check reports whether the history is linearizable.
func (h history) check() porcupine.CheckResult {
	return porcupine.CheckOperationsTimeout(porcupine.Model{
		Init: func() any { return set{} },
		Step: func(state, in, out any) (bool, any) { return state.(set).apply(in.(step), out.(result)) },
	}, h, time.Minute)
}

// corrupted returns copies of the history, each with one corrupted page: an appended entry is
// lost, reordered or duplicated. It returns none for a history in which entries may be appended
// again, because the copy may be possible.
func (h history) corrupted() (all []history) {
	for i, o := range h {
		if in := o.Input.(step); in.what == stepDelete || in.answered > 0 {
			return nil
		}
		e := o.Output.(result).entries
		if len(e) < 2 {
			continue
		}
		for _, page := range [][]string{e[1:], append([]string{e[1], e[0]}, e[2:]...), append(slices.Clone(e), e[len(e)-1])} {
			wrong := slices.Clone(h)
			wrong[i].Output = result{entries: page}
			all = append(all, wrong)
		}
	}
	return all
}

// String formats the history, in the order in which the requests started.
func (h history) String() string {
	var b strings.Builder
	for _, o := range slices.SortedFunc(slices.Values(h), func(a, b porcupine.Operation) int { return int(a.Call - b.Call) }) {
		fmt.Fprintf(&b, "%+v\n", o)
	}
	return b.String()
}

// TestModel checks the model with handwritten histories.
func TestModel(t *testing.T) {
	type op struct {
		in         step
		out        result
		call, back int64
	}
	add := func(entry string, first int, call, back int64) op {
		return op{step{what: stepAppend, batch: []string{entry}}, result{first: first}, call, back}
	}
	page := func(call, back int64, entries ...string) op {
		return op{step{what: stepRead}, result{entries: entries}, call, back}
	}
	does := func(what string, call, back int64) op { return op{step{what: what, after: "a"}, result{}, call, back} }
	late := func(what string, answered int64) op { // execution unknown
		return op{step{what: what, batch: []string{"x"}, title: "x", answered: answered}, result{}, answered - 1, 0}
	}
	made, a, b := does(stepCreate, 1, 2), add("a", 1, 3, 4), add("b", 2, 5, 6)
	for _, test := range []struct {
		name string
		ops  []op
		want porcupine.CheckResult
	}{
		{"page during an append", []op{made, a, add("b", 2, 5, 20), page(7, 8, "a"), page(9, 10, "a", "b")}, porcupine.Ok},
		{"page loses an entry", []op{made, a, add("b", 2, 5, 20), page(7, 8, "a", "b"), page(9, 10, "a")}, porcupine.Illegal},
		{"stale page", []op{made, a, b, page(7, 8, "a")}, porcupine.Illegal},
		{"wrong position", []op{made, a, add("b", 3, 5, 6)}, porcupine.Illegal},
		{"replayed key", []op{made, a, {step{what: stepAppend, batch: []string{"a"}}, result{first: 1, replayed: true}, 5, 6}, page(7, 8, "a")}, porcupine.Ok},
		{"key appended twice", []op{made, a, add("a", 2, 5, 6)}, porcupine.Illegal},
		{"append without a set", []op{a}, porcupine.Illegal},
		{"page without a set", []op{page(7, 8, "a")}, porcupine.Illegal},
		{"deletion", []op{made, a, does(stepDelete, 5, 6), does(stepGone, 7, 8), does(stepMiss, 9, 10)}, porcupine.Ok},
		{"page after a deletion", []op{made, a, does(stepDelete, 5, 6), does(stepRead, 7, 8)}, porcupine.Illegal},
		{"gone before a deletion", []op{made, a, does(stepGone, 7, 8)}, porcupine.Illegal},
		{"recreation", []op{made, a, does(stepDelete, 5, 6), does(stepCreate, 7, 8), add("c", 1, 9, 10), page(11, 12, "c")}, porcupine.Ok},
		{"recreation with old entries", []op{made, a, does(stepDelete, 5, 6), does(stepCreate, 7, 8), add("c", 2, 9, 10)}, porcupine.Illegal},
		{"lost description", []op{made, {step{what: stepDescribe, title: "x"}, result{}, 3, 4}, {step{what: stepView}, result{}, 5, 6}}, porcupine.Illegal},

		{"unknown publish executed", []op{made, late(stepAppend, 4), page(5, 6), page(7, 8, "x")}, porcupine.Ok},
		{"unknown publish not executed", []op{made, late(stepAppend, 4), page(5, 6)}, porcupine.Ok},
		{"unknown publish undone", []op{made, late(stepAppend, 4), page(5, 6, "x"), page(7, 8)}, porcupine.Illegal},
		{"unknown deletion executed late", []op{made, a, late(stepDelete, 6), page(7, 8, "a"), does(stepMiss, 9, 10)}, porcupine.Ok},
		{"unknown deletion affects the next set", []op{made, a, late(stepDelete, 6), does(stepDelete, 7, 8),
			does(stepCreate, 9, 10), add("c", 1, 11, 12), page(13, 14, "c"), does(stepMiss, 15, 16)}, porcupine.Illegal},
		{"unknown publish affects the next set", []op{made, a, late(stepAppend, 6), does(stepDelete, 7, 8), does(stepCreate, 9, 10), page(13, 14, "x")}, porcupine.Illegal},
		{"unknown description recreates the set", []op{made, a, late(stepCreate, 6), does(stepDelete, 7, 8),
			{step{what: stepView}, result{title: "x"}, 9, 10}}, porcupine.Illegal},
	} {
		t.Run(test.name, func(t *testing.T) {
			var h history
			for i, o := range test.ops {
				h.add(i, o.call, o.back, o.in, o.out)
			}
			if got := h.check(); got != test.want {
				t.Errorf("check() = %s, want %s\n%s", got, test.want, h)
			}
		})
	}
}
