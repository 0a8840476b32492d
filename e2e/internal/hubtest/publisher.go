package hubtest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rshub/rshub/e2e/internal/trial"
)

// A Publisher publishes small batches one after the other, and records the responses.
type Publisher struct {
	Name   string
	Keyed  bool         // whether it retries with a key until the hub accepts
	Client *http.Client // default: Client

	mu      sync.Mutex
	Batches []*batch
	stop    context.CancelFunc
	done    chan struct{}
}

// A batch is one published batch. Without a receipt it is unknown whether the memory has it.
type batch struct {
	Texts   []string
	receipt *Receipt
	Tries   int
	last    string   // last response or error
	Errs    []string // responses and errors of failed attempts
}

// StartPublisher starts a publisher, which runs until Finish.
func StartPublisher(t testing.TB, h *Hub, set, name string, keyed bool) *Publisher {
	return (&Publisher{Name: name, Keyed: keyed}).Start(t, h, set)
}

// Start starts the publisher, and returns it.
func (p *Publisher) Start(t testing.TB, h *Hub, set string) *Publisher {
	ctx, cancel := context.WithCancel(context.Background())
	p.stop, p.done = cancel, make(chan struct{})
	if p.Client == nil {
		p.Client = Client
	}
	go func() {
		defer close(p.done)
		for i := 1; ctx.Err() == nil; i++ {
			p.publishBatch(ctx, h.Topic(set), i)
		}
	}()
	t.Cleanup(p.Finish)
	return p
}

// Finish waits for the response to the current batch, and stops.
func (p *Publisher) Finish() {
	p.stop()
	<-p.done
}

func (p *Publisher) publishBatch(ctx context.Context, topic string, i int) {
	var lines []string
	b := &batch{}
	for j := range 1 + i%7 {
		line := fmt.Sprintf(`{"loc":"https://direct.example.org/%s/%d/%d","change":"created"}`, p.Name, i, j)
		e, err := trial.ParseEntry([]byte(line))
		if err != nil {
			panic(err) // the line is constant
		}
		lines, b.Texts = append(lines, line), append(b.Texts, e.Text)
	}
	p.mu.Lock()
	p.Batches = append(p.Batches, b)
	p.mu.Unlock()
	headers := []string{"Content-Type: application/json"}
	if p.Keyed {
		headers = append(headers, fmt.Sprintf("Idempotency-Key: %s-%d", p.Name, i))
	}
	body := `{"changes":[` + strings.Join(lines, ",") + `]}`
	deadline := time.Now().Add(Timeout)
	for time.Now().Before(deadline) {
		a, err := trial.Exchange(p.Client, http.MethodPost, topic, strings.NewReader(body), headers...)
		p.mu.Lock()
		b.Tries++
		switch {
		case err != nil:
			b.last = err.Error()
		case a.Status != http.StatusOK:
			b.last = string(a.Body)
		default:
			b.receipt = new(Receipt)
			err = json.Unmarshal(a.Body, b.receipt)
			b.last = string(a.Body)
		}
		if b.receipt == nil {
			b.Errs = append(b.Errs, b.last)
		}
		over := b.receipt != nil || !p.Keyed || err == nil && a.Status >= 400 && a.Status < 500
		p.mu.Unlock()
		if over && err == nil {
			return
		}
		select {
		case <-time.After(10 * time.Millisecond): // the hub is down
		case <-ctx.Done():
			if !p.Keyed {
				return
			}
		}
		if over {
			return
		}
	}
}

// Acknowledged returns the number of accepted batches.
func (p *Publisher) Acknowledged() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, b := range p.Batches {
		if b.receipt != nil {
			n++
		}
	}
	return n
}

// Check fails the test unless a memory has every acknowledged batch exactly once, and each
// unacknowledged one either whole or not at all.
func (p *Publisher) Check(t testing.TB, all []trial.Entry) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	places := map[string][]uint64{}
	for _, e := range all {
		if strings.Contains(e.Text, "//direct.example.org/"+p.Name+"/") {
			places[e.Text] = append(places[e.Text], e.Position)
		}
	}
	known, unknown := 0, 0
	for i, b := range p.Batches {
		var first uint64
		switch {
		case b.receipt != nil:
			var err error
			if first, _, err = SplitCursor(b.receipt.First); err != nil || b.receipt.Count != len(b.Texts) {
				t.Fatalf("%s %d: got receipt %+v for %d changes: %v", p.Name, i+1, b.receipt, len(b.Texts), err)
			}
			known++
		case p.Keyed:
			t.Fatalf("%s %d: not accepted after %d attempts: %s", p.Name, i+1, b.Tries, b.last)
		default:
			unknown++
			if at := places[b.Texts[0]]; len(at) > 0 {
				first = at[0]
			}
		}
		for j, text := range b.Texts {
			at := places[text]
			if want := first + uint64(j); first == 0 && len(at) > 0 || first > 0 && (len(at) != 1 || at[0] != want) {
				t.Fatalf("%s %d: got positions %v, want %d: %s (%d attempts, %s)", p.Name, i+1, at, want, text, b.Tries, b.last)
			}
			delete(places, text)
		}
	}
	if len(places) > 0 {
		t.Fatalf("%s: memory has changes that were never published: %v", p.Name, places)
	}
	t.Logf("%s: %d acknowledged batches, %d unacknowledged", p.Name, known, unknown)
}
