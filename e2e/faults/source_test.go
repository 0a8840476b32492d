package faults

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/e2e/internal/trial"
)

// A source publishes with keys, each batch to a random set at a random hub. Without an
// answer it publishes the batch again, at another one.
type source struct {
	*soak
	number int
	r      *rand.Rand
	fault  atomic.Pointer[string]
	last   map[string]uint64 // position of its newest change, by set; who holds the gate has it
}

// publish starts a source.
func (s *soak) publish(number int) {
	p := &source{soak: s, number: number, r: s.of(1000 + number), last: map[string]uint64{}}
	s.sources = append(s.sources, p)
	s.work.Go(func() {
		for i := 0; s.ctx.Err() == nil; i++ {
			rest(s.ctx, upTo(p.r, 600*time.Millisecond))
			s.gate.RLock()
			err := p.batch(i)
			s.gate.RUnlock()
			if err != nil {
				text := fmt.Sprintf("source %d: %v", number, err)
				p.fault.Store(&text)
				return
			}
		}
	})
}

// batch publishes one batch until it is acknowledged.
func (p *source) batch(i int) error {
	set := []string{"steady", "trimmed", "trimmed", "trimmed", "reborn"}[p.r.IntN(5)]
	n := 1 + p.r.IntN(12)
	if p.r.IntN(5) == 0 {
		n = 1 + p.r.IntN(300)
	}
	var lines, texts []string
	for j := range n {
		change := []string{"created", "updated", "deleted"}[p.r.IntN(3)]
		line := fmt.Sprintf(`{"loc":"https://soak.example.org/%d/%d/%d","change":"%s"}`, p.number, i, j, change)
		e, err := trial.ParseEntry([]byte(line))
		if err != nil {
			return err
		}
		lines, texts = append(lines, line), append(texts, e.Text)
	}
	body, kind := `{"changes":[`+strings.Join(lines, ",")+`]}`, "application/json"
	if p.r.IntN(3) == 0 {
		body, kind = strings.Join(lines, "\n")+"\n", "application/x-ndjson"
	}
	key := fmt.Sprintf("%d-%d", p.number, i)
	var r *hubtest.Receipt
	for deadline := time.Now().Add(2 * hubtest.Patience); r == nil; {
		var said string
		var refused bool
		r, said, refused = p.post(set, body, kind, key)
		if p.ctx.Err() != nil {
			return nil
		}
		if refused || r == nil && time.Now().After(deadline) {
			return fmt.Errorf("%s of %s: %s", key, set, said)
		}
		if r == nil {
			rest(p.ctx, 50*time.Millisecond)
		}
	}
	first, err := p.ledgers[set].take(r, texts)
	if err == nil && first <= p.last[set] {
		err = fmt.Errorf("%+v comes before an earlier batch, which is at %d", r, p.last[set])
	}
	if err != nil {
		return fmt.Errorf("%s of %s: %w", key, set, err)
	}
	p.last[set] = first
	p.add("changes acknowledged", n)
	if p.r.IntN(10) == 0 { // once more: it is the same answer, or none
		again, _, _ := p.post(set, body, kind, key)
		if again != nil && (!again.Replayed || again.First != r.First || again.Cursor != r.Cursor) {
			return fmt.Errorf("%s of %s is answered %+v, and then %+v", key, set, r, again)
		}
	}
	return nil
}

// post publishes once, at a random hub, and waits only some seconds. Without a receipt it
// returns what was said, and whether that was a refusal.
func (p *source) post(set, body, kind, key string) (r *hubtest.Receipt, said string, refused bool) {
	client := *hubtest.Client
	client.Timeout = 3*time.Second + upTo(p.r, 4*time.Second)
	a, err := trial.Exchange(&client, http.MethodPost, p.hub(p.r).Topic(set), strings.NewReader(body), "Content-Type: "+kind, "Idempotency-Key: "+key)
	switch {
	case err != nil:
		p.add("publishes without an answer", 1)
		return nil, err.Error(), false
	case a.Status == http.StatusServiceUnavailable:
		p.add("publishes answered 503", 1)
		return nil, string(a.Body), false
	case a.Status != http.StatusOK:
		return nil, fmt.Sprintf("%d: %s", a.Status, a.Body), true
	}
	if err := json.Unmarshal(a.Body, &r); err != nil {
		return nil, string(a.Body), true
	}
	return r, "", false
}
