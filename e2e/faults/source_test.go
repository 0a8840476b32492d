package faults

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/e2e/internal/trial"
)

// A source publishes with keys, each batch to a random set at a random hub. Without an
// answer it publishes the batch again, at another one.
type source struct {
	*soak
	r    *rand.Rand
	last map[string]uint64 // position of its newest change, by set; who holds the gate has it
}

// publish starts a source.
func (s *soak) publish(number int) {
	p := &source{soak: s, r: s.of(1000 + number), last: map[string]uint64{}}
	s.sources = append(s.sources, p)
	s.work.Go(func() {
		for i := 0; s.ctx.Err() == nil && !s.Failed(); i++ {
			rest(s.ctx, upTo(p.r, 600*time.Millisecond))
			s.gate.RLock()
			set, key := []string{"steady", "trimmed", "trimmed", "trimmed", "reborn"}[p.r.IntN(5)], fmt.Sprintf("%d-%d", number, i)
			if err := p.batch(set, key); err != nil && s.ctx.Err() == nil {
				s.Errorf("%s of %s: %v", key, set, err)
			}
			s.gate.RUnlock()
		}
	})
}

// batch publishes one batch until it is acknowledged.
func (p *source) batch(set, key string) error {
	n := 1 + p.r.IntN(12)
	if p.r.IntN(5) == 0 {
		n = 1 + p.r.IntN(300)
	}
	i := p.r.IntN(len(p.load.Lines) - n)
	body, kind, texts := p.load.NDJSON(i, i+n), hubtest.AsNDJSON, p.load.Texts[i:i+n]
	if p.r.IntN(3) > 0 {
		body, kind = fmt.Appendf(nil, `{"changes":[%s]}`, bytes.Join(p.load.Lines[i:i+n], []byte(","))), hubtest.AsJSON
	}
	deadline := time.Now().Add(2 * hubtest.Timeout)
	r, err := p.post(set, body, kind, key)
	for ; err != nil; r, err = p.post(set, body, kind, key) {
		if p.ctx.Err() != nil || p.Failed() || time.Now().After(deadline) {
			return err
		}
		rest(p.ctx, 50*time.Millisecond)
	}
	first, err := p.ledgers[set].take(r, texts)
	if err == nil && first <= p.last[set] {
		err = fmt.Errorf("%+v comes before an earlier batch, which is at %d", r, p.last[set])
	}
	p.last[set] = first
	p.Add("changes acknowledged", int64(n))
	if err == nil && p.r.IntN(10) == 0 { // once more: it is the same answer, or none
		again, _ := p.post(set, body, kind, key)
		if again != nil && (!again.Replayed || again.First != r.First || again.Cursor != r.Cursor) {
			err = fmt.Errorf("it is answered %+v, and then %+v", r, again)
		}
	}
	return err
}

// post publishes once, at a random hub, and waits only some seconds. It is an error that there
// is no receipt; a refusal fails the test.
func (p *source) post(set string, body []byte, kind, key string) (r *hubtest.Receipt, err error) {
	client := *hubtest.Client
	client.Timeout = 3*time.Second + upTo(p.r, 4*time.Second)
	a, err := trial.Exchange(&client, http.MethodPost, p.hub(p.r).Topic(set), bytes.NewReader(body), kind, "Idempotency-Key: "+key)
	switch {
	case err != nil:
		p.Add("publishes without an answer", 1)
		return nil, err
	case a.Status == http.StatusOK:
		err = json.Unmarshal(a.Body, &r)
	default:
		p.Add(fmt.Sprint("publishes answered ", a.Status), 1)
		err = fmt.Errorf("%d: %s", a.Status, a.Body)
	}
	if err != nil && a.Status != http.StatusServiceUnavailable {
		p.Errorf("%s of %s is refused: %v", key, set, err)
	}
	return r, err
}

// A ledger is what was acknowledged of one set, since the last checkpoint.
type ledger struct {
	last    atomic.Uint64 // the newest position
	deleted atomic.Bool   // the set is being deleted, so that gone is right
	settled uint64        // up to here all was compared; who holds the gate has it

	mu      sync.Mutex
	entries map[uint64]trial.Entry // by position; without a datetime but for a batch's last
}

// settle notes that all up to a position was compared; 0: that all know that the set is
// deleted.
func (l *ledger) settle(last uint64) {
	l.settled, l.entries = last, map[uint64]trial.Entry{}
	l.last.Store(last)
	l.deleted.Store(false)
}

// take notes an acknowledged batch, and returns the position of its first change.
func (l *ledger) take(r *hubtest.Receipt, texts []string) (first uint64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first, _, err = hubtest.SplitCursor(r.First)
	last, datetime, lerr := hubtest.SplitCursor(r.Cursor)
	if err != nil || lerr != nil || r.Count != len(texts) || last != first+uint64(len(texts))-1 {
		return 0, fmt.Errorf("the receipt %+v for %d changes", r, len(texts))
	}
	for i, text := range texts {
		e := trial.Entry{Position: first + uint64(i), Text: text}
		if old, ok := l.entries[e.Position]; ok || e.Position <= l.settled {
			return 0, fmt.Errorf("position %d was acknowledged for %q already, now for %q", e.Position, old.Text, text)
		}
		if e.Position == last {
			e.Datetime = datetime
		}
		l.entries[e.Position] = e
	}
	l.last.Store(max(l.last.Load(), last))
	return first, nil
}

// since returns what was acknowledged since the last checkpoint, completed by what the hubs
// list. It is an error that they list something else, or that a position is missing.
func (l *ledger) since(listed map[uint64]trial.Entry) (all []trial.Entry, err error) {
	for p := l.settled + 1; p <= l.last.Load(); p++ {
		e, ok := l.entries[p]
		if !ok {
			return nil, fmt.Errorf("position %d was not acknowledged to anybody, and %d was", p, l.last.Load())
		}
		if d, ok := listed[p]; ok {
			if d.Text != e.Text || e.Datetime != "" && d.Datetime != e.Datetime {
				return nil, fmt.Errorf("%+v is listed, and acknowledged was %+v", d, e)
			}
			e = d
		}
		all = append(all, e)
	}
	return all, nil
}
