package redislog

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/changelog/logtest"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/testutil/redistest"
)

// everything makes a test with a fixed sample try everything.
var everything = os.Getenv("RSHUB_PROVE") != ""

// A connFault is a fault of the connection to Redis at an ordinal.
type connFault struct {
	name    string
	request bool // whether the request is lost, or else the answer
	stays   bool // whether all later messages are lost until the hub gives up
	late    bool // whether the request arrives after everything else
}

var cuts = []connFault{
	{"request lost", true, false, false},
	{"answer lost", false, false, false},
	{"requests lost from then on", true, true, false},
	{"answers lost from then on", false, true, false},
	{"request late", true, false, true},
	{"request late, and others lost", true, true, true},
}

// TestFaultPoints cuts the connection at each request and at each answer in turn, from the first
// opening of a memory to the end of a fixed script. Everything acknowledged exists and is listed,
// an unknown step is stored completely or not at all, and nothing else exists. A request that
// arrives late changes nothing, whatever this or another hub has done in the meantime.
func TestFaultPoints(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the script for each fault")
	}
	life := func(url, prefix string) *logtest.ScriptRun {
		l := &logtest.ScriptRun{}
		l.Open = func() (changelog.Log, error) {
			log, err := openAt(t, url, Options{Prefix: prefix, Now: l.Now, edit: storeClock})
			if err != nil {
				return nil, err // not a nil *Log
			}
			return log, nil
		}
		return l
	}
	proxy := redistest.NewProxy(t, shared.addr)
	var requests, answers atomic.Int64
	counting := func(request bool) redistest.Fate {
		if request {
			requests.Add(1)
		} else {
			answers.Add(1)
		}
		return redistest.Passed
	}
	clean := life("redis://"+proxy.Addr(), prefix())
	looks := []string{""} // state after n steps
	folds := new(logtest.ResourceStates)
	proxy.Decide(counting)
	ok(t, clean.Run(t.Context(), func(int) {
		proxy.Decide(nil) // reads of the state are not counted
		looks = append(looks, clean.Dump(t))
		folds.Record(t, clean)
		proxy.Decide(counting)
	}))
	every := int64(11)
	if everything {
		every = 1
	}
	t.Logf("%d requests and %d answers, one in %d is cut", requests.Load(), answers.Load(), every)
	for i, c := range cuts {
		for at := 1 + int64(i)%every; at <= max(requests.Load(), answers.Load()); at += every {
			t.Run(fmt.Sprintf("%s at %d", c.name, at), func(t *testing.T) { c.try(t, at, looks, folds, life) })
		}
	}
}

func (c connFault) try(t *testing.T, at int64, looks []string, folds *logtest.ResourceStates, life func(url, prefix string) *logtest.ScriptRun) {
	proxy, prefix := redistest.NewProxy(t, shared.addr), prefix()
	var count atomic.Int64
	proxy.Decide(func(request bool) redistest.Fate {
		if request != c.request {
			return redistest.Passed
		}
		switch n := count.Add(1); {
		case n == at && c.late:
			return redistest.Late
		case n == at || n > at && c.stays:
			return redistest.Lost
		}
		return redistest.Passed
	})
	l := life("redis://"+proxy.Addr(), prefix)
	err := l.Run(t.Context(), func(int) {})
	acked := l.Acked.Load()
	switch {
	case err == nil && acked != int64(logtest.Steps()):
		t.Fatalf("got %d acknowledged steps", acked)
	case err != nil && !c.stays:
		t.Fatalf("error after one lost message = %v, want a retry", err)
	case err != nil && !errors.Is(err, feed.ErrUnknown) && !errors.Is(err, feed.ErrUnavailable):
		t.Fatalf("error without Redis = %v, want ErrUnknown or ErrUnavailable", err)
	}
	proxy.Decide(nil)

	other := life(shared.url(), prefix) // another hub with an intact connection
	var oerr error
	other.Log, oerr = other.Open()
	ok(t, oerr)
	if err != nil && c.late && acked > 0 {
		// The other hub repeats the step that failed, and executes the rest.
		if logtest.Repeatable(int(acked)) {
			ok(t, other.Resume(t.Context(), int(acked)))
			acked, err = int64(logtest.Steps()), nil
		}
	}
	proxy.Release()
	got := other.Dump(t)
	switch {
	case got == looks[acked], acked == 0:
		other.CheckKeys(t, int(acked))
	case err != nil && (errors.Is(err, feed.ErrUnknown) || harmless(acked)) && got == looks[acked+1]:
		other.CheckKeys(t, int(acked)+1)
	default:
		t.Fatalf("state after %d acknowledged steps (next: %s; %v) =\n%swant\n%s", acked, next(acked), err, got, looks[acked])
	}
	other.CheckInventories(t, folds, int(acked))
}

// harmless reports whether the next step may have been executed although its error denies that. A
// repeated call of Make does no harm, so its error does not distinguish the cases.
func harmless(acked int64) bool { return strings.HasPrefix(next(acked), "make ") }

func next(acked int64) string {
	if acked == int64(logtest.Steps()) {
		return "nothing"
	}
	return logtest.StepName(int(acked))
}
