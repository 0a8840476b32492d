package faults

import (
	"fmt"
	"math"
	"slices"
	"strings"
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
	if in.answered > 0 {
		if s.changed <= in.answered {
			return true, s.change(in)
		}
		return true, s
	}
	all := s.entries()
	switch in.what {
	case appends:
		i := slices.Index(all, in.batch[0])
		if known := i >= 0; !s.exists || out.replayed != known || known && out.first != i+1 || !known && out.first != len(all)+1 {
			return false, s
		}
	case describes:
		if !s.exists {
			return false, s
		}
	case misses:
		return !s.exists, s
	case looks:
		return s.exists && s.title == out.title && len(all) == out.head, s
	case gone:
		return !slices.Contains(all, in.after), s
	case reads:
		from := 0
		if in.after != "" {
			if from = slices.Index(all, in.after) + 1; from == 0 {
				return false, s
			}
		}
		return slices.Equal(all[from:], out.entries), s
	}
	return true, s.change(in)
}

// change returns the set after a step that changes it.
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

// String returns the history for people, in the order in which the requests began.
func (h history) String() string {
	var b strings.Builder
	for _, o := range slices.SortedFunc(slices.Values(h), func(a, b porcupine.Operation) int { return int(a.Call - b.Call) }) {
		in := o.Input.(step)
		end := fmt.Sprint(time.Duration(o.Return))
		if in.answered > 0 {
			end = fmt.Sprintf("unknown at %v", time.Duration(in.answered))
		}
		fmt.Fprintf(&b, "%12v  %-24s client %d: %s %q %q after %q: %+v\n", time.Duration(o.Call), end, o.ClientId, in.what, in.title, in.batch, in.after, o.Output)
	}
	return b.String()
}
