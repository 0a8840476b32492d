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

// A source publishes batches with keys to random sets at random hubs. Without a response it
// publishes the batch again, at another hub.
type source struct {
	*soak
	r    *rand.Rand
	last map[string]uint64 // position of its newest change by set; guarded by the gate
}

// publish starts a source.
func (s *soak) publish(number int) {
	p := &source{soak: s, r: s.rng(1000 + number), last: map[string]uint64{}}
	s.sources = append(s.sources, p)
	s.work.Go(func() {
		for i := 0; s.ctx.Err() == nil && !s.Failed(); i++ {
			sleepCtx(s.ctx, upTo(p.r, 600*time.Millisecond))
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
		sleepCtx(p.ctx, 50*time.Millisecond)
	}
	first, err := p.ledgers[set].add(r, texts)
	if err == nil && first <= p.last[set] {
		err = fmt.Errorf("got %+v before the earlier batch at %d", r, p.last[set])
	}
	p.last[set] = first
	p.Add("changes acknowledged", int64(n))
	if err == nil && p.r.IntN(10) == 0 { // repeat: the response must be the same, or an error
		again, _ := p.post(set, body, kind, key)
		if again != nil && (!again.Replayed || again.First != r.First || again.Cursor != r.Cursor) {
			err = fmt.Errorf("got %+v, then %+v for the same key", r, again)
		}
	}
	return err
}

// post publishes once at a random hub, with a timeout of a few seconds. Without a receipt it
// returns an error; a refusal fails the test.
func (p *source) post(set string, body []byte, kind, key string) (r *hubtest.Receipt, err error) {
	client := *hubtest.Client
	client.Timeout = 3*time.Second + upTo(p.r, 4*time.Second)
	a, err := trial.Exchange(&client, http.MethodPost, p.hub(p.r).Topic(set), bytes.NewReader(body), kind, "Idempotency-Key: "+key)
	switch {
	case err != nil:
		p.Add("publishes without a response", 1)
		return nil, err
	case a.Status == http.StatusOK:
		err = json.Unmarshal(a.Body, &r)
	default:
		p.Add(fmt.Sprint("publishes answered ", a.Status), 1)
		err = fmt.Errorf("%d: %s", a.Status, a.Body)
	}
	if err != nil && a.Status != http.StatusServiceUnavailable {
		p.Errorf("%s of %s was refused: %v", key, set, err)
	}
	return r, err
}

// A ledger has the acknowledged changes of one set since the last checkpoint.
type ledger struct {
	last    atomic.Uint64 // newest position
	deleted atomic.Bool   // whether the set is being deleted, so that gone is correct
	settled uint64        // position up to which all was compared; guarded by the gate

	mu      sync.Mutex
	entries map[uint64]trial.Entry // by position; only the last of a batch has a datetime
}

// settle records that all changes up to a position were compared. Zero means that all followers
// know that the set was deleted.
func (l *ledger) settle(last uint64) {
	l.settled, l.entries = last, map[uint64]trial.Entry{}
	l.last.Store(last)
	l.deleted.Store(false)
}

// add records an acknowledged batch, and returns the position of its first change.
func (l *ledger) add(r *hubtest.Receipt, texts []string) (first uint64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first, _, err = hubtest.SplitCursor(r.First)
	last, datetime, lerr := hubtest.SplitCursor(r.Cursor)
	if err != nil || lerr != nil || r.Count != len(texts) || last != first+uint64(len(texts))-1 {
		return 0, fmt.Errorf("got receipt %+v for %d changes", r, len(texts))
	}
	for i, text := range texts {
		e := trial.Entry{Position: first + uint64(i), Text: text}
		if old, ok := l.entries[e.Position]; ok || e.Position <= l.settled {
			return 0, fmt.Errorf("position %d was acknowledged for %q and again for %q", e.Position, old.Text, text)
		}
		if e.Position == last {
			e.Datetime = datetime
		}
		l.entries[e.Position] = e
	}
	l.last.Store(max(l.last.Load(), last))
	return first, nil
}

// since returns the changes acknowledged since the last checkpoint, completed with the listed
// ones. It returns an error if the hubs list other changes, or if a position is missing.
func (l *ledger) since(listed map[uint64]trial.Entry) (all []trial.Entry, err error) {
	for p := l.settled + 1; p <= l.last.Load(); p++ {
		e, ok := l.entries[p]
		if !ok {
			return nil, fmt.Errorf("position %d was not acknowledged, %d was", p, l.last.Load())
		}
		if d, ok := listed[p]; ok {
			if d.Text != e.Text || e.Datetime != "" && d.Datetime != e.Datetime {
				return nil, fmt.Errorf("got listed entry %+v, want the acknowledged %+v", d, e)
			}
			e = d
		}
		all = append(all, e)
	}
	return all, nil
}
