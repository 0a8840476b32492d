package faults

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// A recorder keeps the history of one set.
type recorder struct {
	set   string
	hubs  []*hubtest.Hub
	tally *tally // of the answers
	begun time.Time
	keeps bool // the set is not deleted

	mu      sync.Mutex
	history history
	sure    []string          // entries that came with a publish that was answered at once, so each is in one log only
	cursors map[string]string // of these entries
	odd     []string          // what no history may have
}

// A caller does one thing after the other.
type caller struct {
	*recorder
	*rand.Rand
	number int
	unsure []string // batches, as NDJSON, of which it does not know whether the memory has them
	made   int      // batches
}

// record lets some callers of a set do some things each, at the same time.
func (s *stage) record(number int, keeps bool) *recorder {
	r := &recorder{set: fmt.Sprint("set-", number), hubs: s.Hubs, tally: &s.tally, begun: time.Now(), keeps: keeps, cursors: map[string]string{}}
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
	return r
}

func (c *caller) act() {
	switch n := c.IntN(100); {
	case n < 15 && len(c.unsure) > 0:
		c.publish(c.unsure[c.IntN(len(c.unsure))])
	case n < 45:
		c.made++
		var lines strings.Builder
		for i := range 1 + c.IntN(3) {
			fmt.Fprintf(&lines, `{"loc":"urn:%d.%d.%d","change":"updated"}`+"\n", c.number, c.made, i)
		}
		c.publish(lines.String())
	case n < 70:
		c.read()
	case n < 80:
		c.look()
	case n < 90 || c.keeps:
		c.describe()
	default:
		c.delete()
	}
}

// An answer is a response of a hub, and when it came. Without an answer the status is 0.
type answer struct {
	status           int
	body             []byte
	problem          string // the end of the type of a problem document
	called, returned int64
}

// ask sends a request to one of the hubs, and counts the answer.
func (c *caller) ask(what, method, path string, body string, headers ...string) (a answer) {
	a.called = int64(time.Since(c.begun))
	got, err := hubtest.Request(method, c.hubs[c.IntN(len(c.hubs))].URL+"/sets/"+c.set+path, strings.NewReader(body), headers...)
	a.returned = int64(time.Since(c.begun))
	if err == nil {
		var p hubtest.Problem
		if a.status, a.body = got.Status, got.Body; a.status >= 300 {
			_ = json.Unmarshal(a.body, &p)
		}
		a.problem = p.Type[strings.LastIndexByte(p.Type, '/')+1:]
	}
	c.tally.add(strings.TrimSpace(fmt.Sprintf("%s %d %s", what, a.status, a.problem)), 1)
	return a
}

// keep adds what a step showed.
func (c *caller) keep(a answer, in step, out sight) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.history.add(c.number, a.called, a.returned, in, out)
}

// never notes an answer that no history may have.
func (c *caller) never(a answer, what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.odd = append(c.odd, fmt.Sprintf("%s: %d %s", what, a.status, a.body))
}

// failed adds the steps of a request that the hub did not carry out: the memory may have done
// them, or may do them yet. first are those that may have been done in any case. then are
// those that were done only if the hub says that it does not know.
func (c *caller) failed(a answer, what string, first, then []step) {
	switch {
	case a.status == 0, a.status == http.StatusServiceUnavailable && a.problem == "unknown":
		first = append(first, then...)
	case a.status == http.StatusServiceUnavailable && a.problem == "unavailable", a.status == http.StatusNotFound: // nothing was written
	default:
		c.never(a, what)
	}
	for _, in := range first {
		in.answered = a.returned
		if a.status == 0 {
			in.answered = math.MaxInt64 - 1 // the hub may still be at it
		}
		c.keep(a, in, sight{})
	}
}

func (c *caller) publish(lines string) {
	var batch []string
	for line := range strings.Lines(lines) {
		var change struct{ Loc string }
		_ = json.Unmarshal([]byte(line), &change)
		batch = append(batch, change.Loc)
	}
	a := c.ask("publish", "POST", "/changes", lines, hubtest.AsNDJSON, "Idempotency-Key: "+batch[0])
	make, add := step{what: makes}, step{what: appends, batch: batch}
	if a.status != http.StatusOK {
		if a.status == 0 || a.status == http.StatusServiceUnavailable {
			c.unsure = append(c.unsure, lines)
		}
		c.failed(a, "publish", []step{make}, []step{add})
		return
	}
	var r hubtest.Receipt
	if err := json.Unmarshal(a.body, &r); err != nil || r.Count != len(batch) {
		c.never(a, "publish")
		return
	}
	c.keep(a, make, sight{})
	c.keep(a, add, sight{first: position(r.First), replayed: r.Replayed})
	if !slices.Contains(c.unsure, lines) {
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
	switch {
	case a.status == http.StatusGone && after != "":
		c.keep(a, step{what: gone, after: after}, sight{})
		return
	case a.status == http.StatusOK:
	case a.status == 0, a.status == http.StatusServiceUnavailable, a.status == http.StatusGone: // the start of a set that was deleted meanwhile
		return
	default:
		c.never(a, "read")
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
	if err := json.Unmarshal(a.body, &page); err != nil || page.Diverged {
		c.never(a, "read")
		return
	}
	var out sight
	for i, change := range page.Changes {
		if change.Position != position(page.After)+1+i {
			c.never(a, "read")
		}
		out.entries = append(out.entries, change.Loc)
		c.mu.Lock()
		known := c.cursors[change.Loc]
		c.mu.Unlock()
		if at := fmt.Sprintf("%d-%d", change.Position, change.Datetime.UnixMicro()); known != "" && known != at {
			c.never(a, "read of an entry that is at "+known)
		}
	}
	c.keep(a, step{what: reads, after: after}, out)
}

// view adds what a set showed of itself.
func (c *caller) view(a answer) {
	var v struct{ Title, Head string }
	if err := json.Unmarshal(a.body, &v); err != nil {
		c.never(a, "look")
		return
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
		c.never(a, "look")
	}
}

func (c *caller) describe() {
	title := fmt.Sprint("title ", c.Uint32())
	a := c.ask("describe", "PUT", "", fmt.Sprintf(`{"title":%q}`, title), hubtest.AsJSON)
	steps := []step{{what: makes, title: title}, {what: describes, title: title}}
	switch a.status {
	case http.StatusOK:
		for _, in := range steps {
			c.keep(a, in, sight{})
		}
		c.view(a)
	case http.StatusNotFound: // somebody else deleted the set meanwhile
		c.failed(a, "describe", steps, nil)
	default:
		c.failed(a, "describe", nil, steps)
	}
}

func (c *caller) delete() {
	switch a := c.ask("delete", "DELETE", "", ""); a.status {
	case http.StatusNoContent: // also if the set was not there any more when a lost request was sent again
		c.keep(a, step{what: deletes}, sight{})
	case http.StatusNotFound:
		c.keep(a, step{what: misses}, sight{})
	default:
		c.failed(a, "delete", nil, []step{{what: deletes}})
	}
}
