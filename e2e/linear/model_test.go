package linear

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
func (s set) take(in step, out sight, called int64) (bool, set) {
	if in.answered > 0 {
		if s.changed <= in.answered {
			return true, s.change(in, called)
		}
		return true, s
	}
	switch in.what {
	case makes, deletes:
	case appends:
		i := slices.Index(s.entries(), in.batch[0])
		if known := i >= 0; !s.exists || out.replayed != known || known && out.first != i+1 || !known && out.first != len(s.entries())+1 {
			return false, s
		}
	case describes:
		if !s.exists {
			return false, s
		}
	case misses:
		return !s.exists, s
	case looks:
		return s.exists && s.title == out.title && len(s.entries()) == out.head, s
	case gone:
		return !slices.Contains(s.entries(), in.after), s
	case reads:
		all, from := s.entries(), 0
		if in.after != "" {
			if from = slices.Index(all, in.after) + 1; from == 0 {
				return false, s
			}
		}
		return slices.Equal(all[from:], out.entries), s
	}
	return true, s.change(in, called)
}

// change returns the set after a step that changes it.
func (s set) change(in step, called int64) set {
	switch {
	case in.what == makes && !s.exists:
		return set{exists: true, changed: called, title: in.title}
	case in.what == deletes && s.exists:
		return set{changed: called}
	case in.what == describes && s.exists:
		s.title = in.title
	case in.what == appends && s.exists && !slices.Contains(s.entries(), in.batch[0]):
		s.log += strings.Join(in.batch, " ") + " "
	}
	return s
}

// A timed step carries when its request began, because the model needs that too.
type timed struct {
	step
	called int64
}

var model = porcupine.Model{
	Init: func() any { return set{} },
	Step: func(state, input, output any) (bool, any) {
		in := input.(timed)
		return state.(set).take(in.step, output.(sight), in.called)
	},
	DescribeOperation: func(input, output any) string { return describe(input.(timed).step, output.(sight)) },
	DescribeState:     func(state any) string { return fmt.Sprintf("%+v", state) },
}

func describe(in step, out sight) string {
	s := in.what
	switch in.what {
	case appends:
		s += fmt.Sprintf(" %v at %d replayed=%v", in.batch, out.first, out.replayed)
	case makes, describes:
		s += fmt.Sprintf(" %q", in.title)
	case looks:
		s += fmt.Sprintf(": %q, head %d", out.title, out.head)
	case reads:
		s += fmt.Sprintf(" after %q: %v", in.after, out.entries)
	case gone:
		s += fmt.Sprintf(" after %q", in.after)
	}
	if in.answered > 0 {
		s += ", unknown"
	}
	return s
}

// A history is what the callers of one set did and saw.
type history []porcupine.Operation

// operation returns a step as the checker takes it. A step whose end is unknown may
// come at any time after its begin; a step that never came is one behind all others.
func operation(client int, called, returned int64, in step, out sight) porcupine.Operation {
	if in.answered > 0 {
		returned = math.MaxInt64
	}
	return porcupine.Operation{ClientId: client, Input: timed{in, called}, Call: called, Output: out, Return: returned}
}

// check reports whether a single memory could have given the history.
func (h history) check() porcupine.CheckResult {
	return porcupine.CheckOperationsTimeout(model, h, time.Minute)
}

// String returns the history for people, in the order in which the requests began.
func (h history) String() string {
	sorted := slices.SortedFunc(slices.Values(h), func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	var b strings.Builder
	for _, o := range sorted {
		end := fmt.Sprint(time.Duration(o.Return))
		if o.Return == math.MaxInt64 {
			end = fmt.Sprintf("answered %v", time.Duration(o.Input.(timed).answered))
		}
		fmt.Fprintf(&b, "%12v  %-24s client %d: %s\n", time.Duration(o.Call), end, o.ClientId, describe(o.Input.(timed).step, o.Output.(sight)))
	}
	return b.String()
}
