package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// A publisher publishes small batches one after the other, and remembers what
// the hub said to each.
type publisher struct {
	name   string
	keyed  bool         // tries again, with a key, until the hub accepts; else never
	client *http.Client // nil: the one that keeps no connections

	mu      sync.Mutex
	batches []*published
	stop    context.CancelFunc
	done    chan struct{}
}

// A published is one batch. Without a receipt it is unknown whether the memory
// has it.
type published struct {
	texts   []string
	receipt *receipt
	tries   int
	last    string   // what was said last
	errs    []string // what was said to tries that failed
}

// publishing starts a publisher, which goes on until its finish.
func publishing(t testing.TB, h *hub, set, name string, keyed bool) *publisher {
	return (&publisher{name: name, keyed: keyed}).start(t, h, set)
}

// start starts it, and returns it.
func (p *publisher) start(t testing.TB, h *hub, set string) *publisher {
	ctx, cancel := context.WithCancel(context.Background())
	p.stop, p.done = cancel, make(chan struct{})
	if p.client == nil {
		p.client = client
	}
	go func() {
		defer close(p.done)
		for i := 1; ctx.Err() == nil; i++ {
			p.batch(ctx, h.topic(set), i)
		}
	}()
	t.Cleanup(p.finish)
	return p
}

// finish lets the batch that is under way be answered, and ends.
func (p *publisher) finish() {
	p.stop()
	<-p.done
}

func (p *publisher) batch(ctx context.Context, topic string, i int) {
	var lines []string
	b := &published{}
	for j := range 1 + i%7 {
		line := fmt.Sprintf(`{"loc":"https://direct.example.org/%s/%d/%d","change":"created"}`, p.name, i, j)
		e, err := parseEntry([]byte(line))
		if err != nil {
			panic(err) // the line stands above
		}
		lines, b.texts = append(lines, line), append(b.texts, e.text)
	}
	p.mu.Lock()
	p.batches = append(p.batches, b)
	p.mu.Unlock()
	headers := []string{"Content-Type: application/json"}
	if p.keyed {
		headers = append(headers, fmt.Sprintf("Idempotency-Key: %s-%d", p.name, i))
	}
	body := `{"changes":[` + strings.Join(lines, ",") + `]}`
	deadline := time.Now().Add(patience)
	for time.Now().Before(deadline) {
		a, err := requestBy(p.client, http.MethodPost, topic, strings.NewReader(body), headers...)
		p.mu.Lock()
		b.tries++
		switch {
		case err != nil:
			b.last = err.Error()
		case a.status != http.StatusOK:
			b.last = string(a.body)
		default:
			b.receipt = new(receipt)
			err = json.Unmarshal(a.body, b.receipt)
			b.last = string(a.body)
		}
		if b.receipt == nil {
			b.errs = append(b.errs, b.last)
		}
		over := b.receipt != nil || !p.keyed || err == nil && a.status >= 400 && a.status < 500
		p.mu.Unlock()
		if over && err == nil {
			return
		}
		select {
		case <-time.After(10 * time.Millisecond): // the hub is down
		case <-ctx.Done():
			if !p.keyed {
				return
			}
		}
		if over {
			return
		}
	}
}

// acknowledged counts the batches that were accepted.
func (p *publisher) acknowledged() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, b := range p.batches {
		if b.receipt != nil {
			n++
		}
	}
	return n
}

// check checks that a memory has exactly what was acknowledged, and of what was
// not at most the whole.
func (p *publisher) check(t testing.TB, all []entry) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	places := map[string][]uint64{}
	for _, e := range all {
		if strings.Contains(e.text, "//direct.example.org/"+p.name+"/") {
			places[e.text] = append(places[e.text], e.position)
		}
	}
	known, unknown := 0, 0
	for i, b := range p.batches {
		var first uint64
		switch {
		case b.receipt != nil:
			var err error
			if first, _, err = splitCursor(b.receipt.First); err != nil || b.receipt.Count != len(b.texts) {
				t.Fatalf("%s %d: the receipt %+v for %d changes: %v", p.name, i+1, b.receipt, len(b.texts), err)
			}
			known++
		case p.keyed:
			t.Fatalf("%s %d was not accepted after %d tries: %s", p.name, i+1, b.tries, b.last)
		default:
			unknown++
			if at := places[b.texts[0]]; len(at) > 0 {
				first = at[0]
			}
		}
		for j, text := range b.texts {
			at := places[text]
			if want := first + uint64(j); first == 0 && len(at) > 0 || first > 0 && (len(at) != 1 || at[0] != want) {
				t.Fatalf("%s %d is at %v in the memory, not at %d: %s (%d tries, %s)", p.name, i+1, at, want, text, b.tries, b.last)
			}
			delete(places, text)
		}
	}
	if len(places) > 0 {
		t.Fatalf("%s: the memory has what was never published: %v", p.name, places)
	}
	t.Logf("%s: %d batches were acknowledged, %d were not", p.name, known, unknown)
}
