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

// The histories are short: to check one takes time that grows exponentially with what
// is under way at the same time.
const (
	callers = 3
	things  = 7 // that each caller does
	lanes   = 6 // histories at the same time, each of a set of its own
)

// TestLinearizable records histories on two hubs, between which and Redis the connections
// are cut, and requests and answers are held until nobody waits for them any more. Each
// history must be one that a single memory could have given, which does one thing after the
// other. No history in which a page of it is corrupted may be one. RSHUB_E2E_FULL makes it 1,000 histories with a seed of their own; RSHUB_E2E_SEED
// repeats the choices of a run.
func TestLinearizable(t *testing.T) {
	histories := size(100, 1000)
	s := newStage(t, hubtest.Seed(t, size(1, rand.Uint64())), 2, 500*time.Millisecond, linkFaults, "RSHUB_REDIS_TIMEOUT=100ms")
	s.pause = 100 * time.Millisecond
	s.during(func() {
		var work sync.WaitGroup
		for lane := range lanes {
			work.Go(func() {
				for n := lane; n < histories && !s.Failed(); n += lanes {
					h := s.record(n)
					if result := h.check(); result != porcupine.Ok || s.Failed() {
						t.Errorf("history %d: %s\n%s", n, result, h)
					}
					for _, wrong := range h.corrupted() {
						s.Add("corrupted", 1)
						if result := wrong.check(); result != porcupine.Illegal {
							t.Errorf("history %d, corrupted: %s\n%s", n, result, wrong)
						}
					}
				}
			})
		}
		work.Wait()
	})
	for _, what := range []string{"corrupted", "publish 503 unknown", "delete 503 unknown", "describe 503 unknown", "read 410 gone"} {
		if (histories >= 1000 || what == "corrupted") && s.Get(what) == nil {
			t.Errorf("%d histories, and not once %s: they say nothing of it", histories, what)
		}
	}
}

// A recorder keeps the history of one set.
type recorder struct {
	*stage
	set string

	mu      sync.Mutex
	history history
	sure    []string          // entries that came with a publish that was answered at once, so each is in one log only
	cursors map[string]string // of these entries
}

// A caller does one thing after the other.
type caller struct {
	*recorder
	*rand.Rand
	number int
	unsure [][]string // batches of which it does not know whether the memory has them
	made   int        // batches
}

// record lets some callers of a set do some things each, at the same time.
func (s *stage) record(number int) history {
	r := &recorder{stage: s, set: fmt.Sprint("set-", number), cursors: map[string]string{}}
	var wg sync.WaitGroup
	for i := range callers {
		c := &caller{recorder: r, Rand: s.of(callers*number + i + 1), number: i}
		wg.Go(func() {
			for range things {
				c.act()
			}
		})
	}
	wg.Wait()
	return r.history
}

func (c *caller) act() {
	switch n := c.IntN(100); {
	case n < 15 && len(c.unsure) > 0:
		c.publish(c.unsure[c.IntN(len(c.unsure))], false)
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
		c.look()
	case n < 90:
		c.describe()
	default:
		c.delete()
	}
}

// An answer is a response of a hub, and when it came. Without an answer the status is 0.
type answer struct {
	what             string // was asked
	status           int
	body             []byte
	problem          string // the end of the type of a problem document
	called, returned int64
}

// ask sends a request to one of the hubs, and counts the answer.
func (c *caller) ask(what, method, path string, body string, headers ...string) *answer {
	a := &answer{what: what, called: int64(time.Since(c.begun))}
	got, err := hubtest.Request(method, c.Hubs[c.IntN(len(c.Hubs))].URL+"/sets/"+c.set+path, strings.NewReader(body), headers...)
	a.returned = int64(time.Since(c.begun))
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

// keep adds what a step showed.
func (c *caller) keep(a *answer, in step, out sight) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.history.add(c.number, a.called, a.returned, in, out)
}

// never fails the test for an answer that no history may have.
func (c *caller) never(a *answer) { c.Errorf("%s of %s: %d %s", a.what, c.set, a.status, a.body) }

// nothing reports whether the hub says that nothing was written.
func (a *answer) nothing() bool {
	return a.status == http.StatusNotFound || a.status == http.StatusServiceUnavailable && a.problem == "unavailable"
}

// failed adds the steps of a request that the hub may not have carried out: the memory may
// have done them, or may do them yet.
func (c *caller) failed(a *answer, steps ...step) {
	answered := a.returned
	switch {
	case a.status == 0:
		answered = math.MaxInt64 - 1 // the hub may still be at it
	case !a.nothing() && (a.status != http.StatusServiceUnavailable || a.problem != "unknown"):
		c.never(a)
	}
	for _, in := range steps {
		in.answered = answered
		c.keep(a, in, sight{})
	}
}

// publish publishes a batch, for the first time or again.
func (c *caller) publish(batch []string, first bool) {
	var lines strings.Builder
	for _, loc := range batch {
		fmt.Fprintf(&lines, `{"loc":%q,"change":"updated"}`+"\n", loc)
	}
	a := c.ask("publish", "POST", "/changes", lines.String(), hubtest.AsNDJSON, "Idempotency-Key: "+batch[0])
	steps := []step{{what: makes}, {what: appends, batch: batch}}
	if a.status != http.StatusOK {
		if a.status != http.StatusNotFound {
			c.unsure = append(c.unsure, batch)
		}
		if a.nothing() {
			steps = steps[:1]
		}
		c.failed(a, steps...)
		return
	}
	var r hubtest.Receipt
	if err := json.Unmarshal(a.body, &r); err != nil || r.Count != len(batch) {
		c.never(a)
	}
	c.keep(a, steps[0], sight{})
	c.keep(a, steps[1], sight{first: position(r.First), replayed: r.Replayed})
	if first {
		last := batch[len(batch)-1]
		c.mu.Lock()
		defer c.mu.Unlock()
		c.sure, c.cursors[last] = append(c.sure, last), r.Cursor
	}
}

func position(cursor string) (n int) {
	_, _ = fmt.Sscanf(cursor, "%d-", &n)
	return n
}

// read asks for a page: of everything, or after an entry that some caller has seen.
func (c *caller) read() {
	since, after := "start", ""
	c.mu.Lock()
	if n := c.IntN(len(c.sure) + 1); n > 0 {
		after = c.sure[n-1]
		since = c.cursors[after]
	}
	c.mu.Unlock()
	a := c.ask("read", "GET", "/changes?since="+url.QueryEscape(since), "", "Accept: application/json")
	switch a.status {
	case http.StatusGone:
		if after != "" { // else it is the start of a set that was deleted meanwhile
			c.keep(a, step{what: gone, after: after}, sight{})
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
		c.never(a)
	}
	var out sight
	for i, change := range page.Changes {
		out.entries = append(out.entries, change.Loc)
		c.mu.Lock()
		known := c.cursors[change.Loc]
		c.mu.Unlock()
		at := fmt.Sprintf("%d-%d", change.Position, change.Datetime.UnixMicro())
		if change.Position != position(page.After)+1+i || known != "" && known != at {
			c.never(a)
		}
	}
	c.keep(a, step{what: reads, after: after}, out)
}

// view adds what a set showed of itself.
func (c *caller) view(a *answer) {
	var v struct{ Title, Head string }
	if err := json.Unmarshal(a.body, &v); err != nil {
		c.never(a)
	}
	c.keep(a, step{what: looks}, sight{title: v.Title, head: position(v.Head)})
}

func (c *caller) look() {
	switch a := c.ask("look", "GET", "", ""); a.status {
	case http.StatusOK:
		c.view(a)
	case http.StatusNotFound:
		c.keep(a, step{what: misses}, sight{})
	case 0, http.StatusServiceUnavailable:
	default:
		c.never(a)
	}
}

func (c *caller) describe() {
	title := fmt.Sprint("title ", c.Uint32())
	a := c.ask("describe", "PUT", "", fmt.Sprintf(`{"title":%q}`, title), hubtest.AsJSON)
	steps := []step{{what: makes, title: title}, {what: describes, title: title}}
	switch {
	case a.status == http.StatusOK:
		c.keep(a, steps[0], sight{})
		c.keep(a, steps[1], sight{})
		c.view(a)
	case a.problem == "unavailable": // nothing was written
	default: // or not found: somebody else deleted the set meanwhile
		c.failed(a, steps...)
	}
}

func (c *caller) delete() {
	switch a := c.ask("delete", "DELETE", "", ""); {
	case a.status == http.StatusNoContent: // also if the set was not there any more when a lost request was sent again
		c.keep(a, step{what: deletes}, sight{})
	case a.status == http.StatusNotFound:
		c.keep(a, step{what: misses}, sight{})
	case a.nothing():
	default:
		c.failed(a, step{what: deletes})
	}
}
