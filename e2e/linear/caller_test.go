package linear

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// A recorder keeps the history of one set.
type recorder struct {
	set   string
	hubs  []string // their URLs
	http  *http.Client
	begun time.Time
	keeps bool // the set is not deleted

	mu      sync.Mutex
	history history
	sure    []string          // entries that came with a publish that was answered at once, so each is in one log only
	cursors map[string]string // of these entries
	counts  map[string]int    // of the answers, for the log
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

func (r *recorder) now() int64 { return int64(time.Since(r.begun)) }

// run lets callers do some things each, at the same time, and returns their history.
func (r *recorder) run(rng *rand.Rand, callers, things int) {
	var wg sync.WaitGroup
	for i := range callers {
		c := &caller{recorder: r, Rand: rand.New(rand.NewPCG(rng.Uint64(), 0)), number: i}
		wg.Go(func() {
			for range things {
				c.act()
			}
		})
	}
	wg.Wait()
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

// An answer is a response of a hub, and when it came.
type answer struct {
	status           int
	body             []byte
	called, returned int64
}

// ask sends a request to one of the hubs. Without an answer the status is 0.
func (c *caller) ask(method, path string, body string, headers ...string) answer {
	a := answer{called: c.now()}
	req, err := http.NewRequest(method, c.hubs[c.IntN(len(c.hubs))]+"/sets/"+c.set+path, strings.NewReader(body))
	if err == nil {
		for i := 0; i < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		var resp *http.Response
		if resp, err = c.http.Do(req); err == nil {
			a.status = resp.StatusCode
			a.body, err = io.ReadAll(resp.Body)
			resp.Body.Close()
		}
	}
	if err != nil {
		a.status = 0
	}
	a.returned = c.now()
	return a
}

// problem returns the end of the type of a problem document.
func (a answer) problem() string {
	var p struct{ Type string }
	_ = json.Unmarshal(a.body, &p)
	return p.Type[strings.LastIndexByte(p.Type, '/')+1:]
}

// keep adds what a step showed.
func (c *caller) keep(a answer, in step, out sight) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.history = append(c.history, operation(c.number, a.called, a.returned, in, out))
}

// maybe adds steps that the memory may have done, or may do yet.
func (c *caller) maybe(a answer, steps ...step) {
	for _, in := range steps {
		in.answered = a.returned
		if a.status == 0 {
			in.answered = math.MaxInt64 - 1 // the hub may still be at it
		}
		c.keep(a, in, sight{})
	}
}

// count counts an answer for the log.
func (c *caller) count(a answer, what string) {
	kind := fmt.Sprint(what, " ", a.status)
	if a.status >= 300 {
		kind += " " + a.problem()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[kind]++
}

// never notes an answer that no history may have.
func (c *caller) never(a answer, what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.odd = append(c.odd, fmt.Sprintf("%s: %d %s", what, a.status, a.body))
}

// failed adds the steps of a request that the hub did not carry out. first are the steps
// that may have been done in any case. then are those that were done only if the hub
// says that it does not know.
func (c *caller) failed(a answer, what string, first, then []step) {
	switch {
	case a.status == 0, a.status == http.StatusServiceUnavailable && a.problem() == "unknown":
		c.maybe(a, append(first, then...)...)
	case a.status == http.StatusServiceUnavailable && a.problem() == "unavailable", a.status == http.StatusNotFound:
		c.maybe(a, first...) // else nothing was written
	default:
		c.never(a, what)
	}
}

func (c *caller) publish(lines string) {
	var batch []string
	for line := range strings.Lines(lines) {
		var change struct{ Loc string }
		_ = json.Unmarshal([]byte(line), &change)
		batch = append(batch, change.Loc)
	}
	a := c.ask("POST", "/changes", lines, "Content-Type", "application/x-ndjson", "Idempotency-Key", batch[0])
	c.count(a, "publish")
	make, add := step{what: makes}, step{what: appends, batch: batch}
	if a.status != http.StatusOK {
		if a.status == 0 || a.status == http.StatusServiceUnavailable {
			c.unsure = append(c.unsure, lines)
		}
		c.failed(a, "publish", []step{make}, []step{add})
		return
	}
	var r struct {
		First, Cursor string
		Count         int
		Replayed      bool
	}
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
	a := c.ask("GET", "/changes?since="+url.QueryEscape(since), "", "Accept", "application/json")
	c.count(a, "read")
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
	a := c.ask("GET", "", "")
	c.count(a, "look")
	switch a.status {
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
	body, _ := json.Marshal(map[string]string{"title": title})
	a := c.ask("PUT", "", string(bytes.TrimSpace(body)), "Content-Type", "application/json")
	c.count(a, "describe")
	make, describe := step{what: makes, title: title}, step{what: describes, title: title}
	if a.status != http.StatusOK {
		var first []step
		if a.status == http.StatusNotFound { // somebody else deleted the set meanwhile
			first = []step{make, describe}
		}
		c.failed(a, "describe", first, []step{make, describe})
		return
	}
	c.keep(a, make, sight{})
	c.keep(a, describe, sight{})
	c.view(a)
}

func (c *caller) delete() {
	a := c.ask("DELETE", "", "")
	c.count(a, "delete")
	switch a.status {
	case http.StatusNoContent: // also if the set was not there any more when a lost request was sent again
		c.keep(a, step{what: deletes}, sight{})
	case http.StatusNotFound:
		c.keep(a, step{what: misses}, sight{})
	default:
		c.failed(a, "delete", nil, []step{{what: deletes}})
	}
}
