package faults

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// The histories are short, because the time to check one grows exponentially with the number of
// concurrent operations.
const (
	callers    = 3
	operations = 7 // operations per caller
	parallel   = 6 // concurrent histories, each of its own set
)

// TestLinearizable records histories of two hubs whose connections to Redis are cut, and whose
// requests and responses are delayed past their timeouts. Each history must be linearizable: a
// single memory that executes one operation at a time could have produced it. No history with a
// corrupted page may be. RSHUB_E2E_FULL records 1,000 histories with a random seed;
// RSHUB_E2E_SEED repeats a run.
func TestLinearizable(t *testing.T) {
	histories := size(100, 1000)
	s := newHarness(t, hubtest.Seed(t, size(1, rand.Uint64())), 2, 500*time.Millisecond, linkFaults, "RSHUB_REDIS_TIMEOUT=100ms")
	s.pause = 100 * time.Millisecond
	s.injectDuring(func() {
		var work sync.WaitGroup
		for lane := range parallel {
			work.Go(func() {
				for n := lane; n < histories && !s.Failed(); n += parallel {
					h := s.record(n)
					if result := h.check(); result != porcupine.Ok || s.Failed() {
						t.Errorf("check of history %d = %s, want Ok\n%s", n, result, h)
					}
					for _, wrong := range h.corrupted() {
						s.Add("corrupted", 1)
						if result := wrong.check(); result != porcupine.Illegal {
							t.Errorf("check of corrupted history %d = %s, want Illegal\n%s", n, result, wrong)
						}
					}
				}
			})
		}
		work.Wait()
	})
	for _, what := range []string{"corrupted", "publish 503 unknown", "delete 503 unknown", "describe 503 unknown", "read 410 gone"} {
		if (histories >= 1000 || what == "corrupted") && s.Get(what) == nil {
			t.Errorf("%d histories without %q: they do not cover it", histories, what)
		}
	}
}

// A recorder records the history of one set.
type recorder struct {
	*harness
	set string

	mu      sync.Mutex
	history history
	known   []string          // entries whose publish was acknowledged immediately, so each is in one log only
	cursors map[string]string // cursors of these entries
}

// A caller executes one operation at a time.
type caller struct {
	*recorder
	*rand.Rand
	number  int
	unknown [][]string // batches that the memory may have or not
	made    int        // number of batches
}

// record runs the callers of a set concurrently, and returns their history.
func (s *harness) record(number int) history {
	r := &recorder{harness: s, set: fmt.Sprint("set-", number), cursors: map[string]string{}}
	var wg sync.WaitGroup
	for i := range callers {
		c := &caller{recorder: r, Rand: s.rng(callers*number + i + 1), number: i}
		wg.Go(func() {
			for range operations {
				c.doOperation()
			}
		})
	}
	wg.Wait()
	return r.history
}

func (c *caller) doOperation() {
	switch n := c.IntN(100); {
	case n < 15 && len(c.unknown) > 0:
		c.publish(c.unknown[c.IntN(len(c.unknown))], false)
	case n < 45:
		c.made++
		var batch []string
		for i := range 1 + c.IntN(3) {
			batch = append(batch, fmt.Sprintf("urn:%d.%d.%d", c.number, c.made, i))
		}
		c.publish(batch, true)
	case n < 70:
		c.read()
	case n < 80:
		c.get()
	case n < 90:
		c.describe()
	default:
		c.delete()
	}
}

// A response is the response to an operation, with its times. Without a response the status is 0.
type response struct {
	what             string // operation
	status           int
	body             []byte
	problem          string // last segment of the type of a problem document
	called, returned int64
}

// request sends a request to a random hub, and counts the response.
func (c *caller) request(what, method, path string, body string, headers ...string) *response {
	a := &response{what: what, called: int64(time.Since(c.start))}
	got, err := hubtest.Request(method, c.Hubs[c.IntN(len(c.Hubs))].URL+"/sets/"+c.set+path, strings.NewReader(body), headers...)
	a.returned = int64(time.Since(c.start))
	if err == nil {
		var p hubtest.Problem
		if a.status, a.body = got.Status, got.Body; a.status >= 300 {
			_ = json.Unmarshal(a.body, &p)
		}
		a.problem = p.Type[strings.LastIndexByte(p.Type, '/')+1:]
	}
	c.Add(strings.TrimSpace(fmt.Sprintf("%s %d %s", what, a.status, a.problem)), 1)
	return a
}

// addStep adds a step to the history.
func (c *caller) addStep(a *response, in step, out result) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.history.add(c.number, a.called, a.returned, in, out)
}

// reportInvalid fails the test for a response that no history may have.
func (c *caller) reportInvalid(a *response) {
	c.Errorf("%s of %s: unexpected status %d: %s", a.what, c.set, a.status, a.body)
}

// nothingWritten reports whether the response guarantees that nothing was written.
func (a *response) nothingWritten() bool {
	return a.status == http.StatusNotFound || a.status == http.StatusServiceUnavailable && a.problem == "unavailable"
}

// addUnknown adds the steps of a request whose execution is unknown: the memory may have executed
// them, or may do so later.
func (c *caller) addUnknown(a *response, steps ...step) {
	answered := a.returned
	switch {
	case a.status == 0:
		answered = math.MaxInt64 - 1 // the hub may still execute it
	case !a.nothingWritten() && (a.status != http.StatusServiceUnavailable || a.problem != "unknown"):
		c.reportInvalid(a)
	}
	for _, in := range steps {
		in.answered = answered
		c.addStep(a, in, result{})
	}
}

// publish publishes a batch, for the first time or again.
func (c *caller) publish(batch []string, first bool) {
	var lines strings.Builder
	for _, loc := range batch {
		fmt.Fprintf(&lines, `{"loc":%q,"change":"updated"}`+"\n", loc)
	}
	a := c.request("publish", "POST", "/changes", lines.String(), hubtest.AsNDJSON, "Idempotency-Key: "+batch[0])
	steps := []step{{what: stepCreate}, {what: stepAppend, batch: batch}}
	if a.status != http.StatusOK {
		if a.status != http.StatusNotFound {
			c.unknown = append(c.unknown, batch)
		}
		if a.nothingWritten() {
			steps = steps[:1]
		}
		c.addUnknown(a, steps...)
		return
	}
	var r hubtest.Receipt
	if err := json.Unmarshal(a.body, &r); err != nil || r.Count != len(batch) {
		c.reportInvalid(a)
	}
	c.addStep(a, steps[0], result{})
	c.addStep(a, steps[1], result{first: position(r.First), replayed: r.Replayed})
	if first {
		last := batch[len(batch)-1]
		c.mu.Lock()
		defer c.mu.Unlock()
		c.known, c.cursors[last] = append(c.known, last), r.Cursor
	}
}

func position(cursor string) (n int) {
	_, _ = fmt.Sscanf(cursor, "%d-", &n)
	return n
}

// read requests a page, from the start or after an entry that some caller has received.
func (c *caller) read() {
	since, after := "start", ""
	c.mu.Lock()
	if n := c.IntN(len(c.known) + 1); n > 0 {
		after = c.known[n-1]
		since = c.cursors[after]
	}
	c.mu.Unlock()
	a := c.request("read", "GET", "/changes?since="+url.QueryEscape(since), "", "Accept: application/json")
	switch a.status {
	case http.StatusGone:
		if after != "" { // else the set was deleted in the meantime
			c.addStep(a, step{what: stepGone, after: after}, result{})
		}
		return
	case 0, http.StatusServiceUnavailable:
		return
	}
	var page struct {
		After    string
		Diverged bool
		Changes  []struct {
			Position int
			Datetime time.Time
			Loc      string
		}
	}
	if err := json.Unmarshal(a.body, &page); a.status != http.StatusOK || err != nil || page.Diverged {
		c.reportInvalid(a)
	}
	var out result
	for i, change := range page.Changes {
		out.entries = append(out.entries, change.Loc)
		c.mu.Lock()
		known := c.cursors[change.Loc]
		c.mu.Unlock()
		at := fmt.Sprintf("%d-%d", change.Position, change.Datetime.UnixMicro())
		if change.Position != position(page.After)+1+i || known != "" && known != at {
			c.reportInvalid(a)
		}
	}
	c.addStep(a, step{what: stepRead, after: after}, out)
}

// addView adds the description of the set in a response.
func (c *caller) addView(a *response) {
	var v struct{ Title, Head string }
	if err := json.Unmarshal(a.body, &v); err != nil {
		c.reportInvalid(a)
	}
	c.addStep(a, step{what: stepView}, result{title: v.Title, head: position(v.Head)})
}

func (c *caller) get() {
	switch a := c.request("view", "GET", "", ""); a.status {
	case http.StatusOK:
		c.addView(a)
	case http.StatusNotFound:
		c.addStep(a, step{what: stepMiss}, result{})
	case 0, http.StatusServiceUnavailable:
	default:
		c.reportInvalid(a)
	}
}

func (c *caller) describe() {
	title := fmt.Sprint("title ", c.Uint32())
	a := c.request("describe", "PUT", "", fmt.Sprintf(`{"title":%q}`, title), hubtest.AsJSON)
	steps := []step{{what: stepCreate, title: title}, {what: stepDescribe, title: title}}
	switch {
	case a.status == http.StatusOK:
		c.addStep(a, steps[0], result{})
		c.addStep(a, steps[1], result{})
		c.addView(a)
	case a.problem == "unavailable": // not executed
	default: // unknown, or another caller deleted the set in the meantime
		c.addUnknown(a, steps...)
	}
}

func (c *caller) delete() {
	switch a := c.request("delete", "DELETE", "", ""); {
	case a.status == http.StatusNoContent: // or a retry, after a lost response, that found the set deleted
		c.addStep(a, step{what: stepDelete}, result{})
	case a.status == http.StatusNotFound:
		c.addStep(a, step{what: stepMiss}, result{})
	case a.nothingWritten():
	default:
		c.addUnknown(a, step{what: stepDelete})
	}
}
