package soak

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/e2e/internal/trial"
)

// A ledger is what was acknowledged of one set, since the last checkpoint.
type ledger struct {
	mu      sync.Mutex
	settled uint64                 // up to here all was compared
	texts   map[uint64]trial.Entry // by position; without a datetime but for a batch's last
	last    uint64                 // the newest position
	deleted bool                   // the set is being deleted, so that gone is right
}

func (l *ledger) head() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// add notes an acknowledged batch.
func (l *ledger) add(r *hubtest.Receipt, texts []string) (first uint64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first, _, err = hubtest.SplitCursor(r.First)
	last, datetime, lerr := hubtest.SplitCursor(r.Cursor)
	if err != nil || lerr != nil || r.Count != len(texts) || last != first+uint64(len(texts))-1 {
		return 0, fmt.Errorf("the receipt %+v for %d changes", r, len(texts))
	}
	if l.texts == nil {
		l.texts = map[uint64]trial.Entry{}
	}
	for i, text := range texts {
		p := first + uint64(i)
		if old, ok := l.texts[p]; ok || p <= l.settled {
			return 0, fmt.Errorf("position %d was acknowledged for %q already, now for %q", p, old.Text, text)
		}
		l.texts[p] = trial.Entry{Position: p, Text: text}
	}
	l.texts[last] = trial.Entry{Position: last, Datetime: datetime, Text: texts[len(texts)-1]}
	l.last = max(l.last, last)
	return first, nil
}

// A source publishes with keys, each batch to a random set at a random hub, and
// when that does not answer again at another.
type source struct {
	number int
	rand   *rand.Rand
	done   chan struct{}
	fault  atomic.Pointer[string]
	last   map[string]uint64 // position of its newest change, by set
}

func (s *soak) publish(number int) {
	p := &source{number: number, rand: rand.New(rand.NewPCG(s.seed, uint64(1000+number))), done: make(chan struct{}), last: map[string]uint64{}}
	s.sources = append(s.sources, p)
	go func() {
		defer close(p.done)
		for i := 0; ; i++ {
			select {
			case <-s.stop:
				return
			case <-time.After(time.Duration(p.rand.IntN(600)) * time.Millisecond):
			}
			s.gate.RLock()
			err := s.batch(p, i)
			s.gate.RUnlock()
			if err != nil {
				text := err.Error()
				p.fault.Store(&text)
				return
			}
		}
	}()
}

// batch publishes one batch until it is acknowledged.
func (s *soak) batch(p *source, i int) error {
	set := []string{"steady", "trimmed", "trimmed", "trimmed", "reborn"}[p.rand.IntN(5)]
	n := 1 + p.rand.IntN(12)
	if p.rand.IntN(5) == 0 {
		n = 1 + p.rand.IntN(300)
	}
	var lines, texts []string
	for j := range n {
		change := []string{"created", "updated", "deleted"}[p.rand.IntN(3)]
		line := fmt.Sprintf(`{"loc":"https://soak.example.org/%d/%d/%d","change":"%s"}`, p.number, i, j, change)
		e, err := trial.ParseEntry([]byte(line))
		if err != nil {
			return err
		}
		lines, texts = append(lines, line), append(texts, e.Text)
	}
	body, kind := `{"changes":[`+strings.Join(lines, ",")+`]}`, "application/json"
	if p.rand.IntN(3) == 0 {
		body, kind = strings.Join(lines, "\n")+"\n", "application/x-ndjson"
	}
	key := fmt.Sprintf("%d-%d", p.number, i)
	deadline := time.Now().Add(2 * hubtest.Patience)
	for try := 0; ; try++ {
		r, said := s.post(p, set, body, kind, key)
		if r != nil {
			first, err := s.ledgers[set].add(r, texts)
			if err != nil {
				return fmt.Errorf("%s of %s: %w", key, set, err)
			}
			if first <= p.last[set] && p.last[set] <= s.ledgers[set].head() && first > 1 && p.last[set] > 0 {
				return fmt.Errorf("%s of %s is at %d, and an earlier one at %d", key, set, first, p.last[set])
			}
			p.last[set] = first
			s.report.acknowledged.Add(int64(n))
			if r.Replayed {
				s.report.replayed.Add(1)
			}
			if p.rand.IntN(10) == 0 { // once more: it is the same answer, or none
				if again, _ := s.post(p, set, body, kind, key); again != nil {
					if !again.Replayed || again.First != r.First || again.Cursor != r.Cursor {
						return fmt.Errorf("%s of %s is answered %+v, and then %+v", key, set, r, again)
					}
					s.report.replayed.Add(1)
				}
			}
			return nil
		}
		if strings.HasPrefix(said, "refused") || time.Now().After(deadline) {
			return fmt.Errorf("%s of %s after %d tries: %s", key, set, try+1, said)
		}
		s.report.retried.Add(1)
		select {
		case <-time.After(50 * time.Millisecond):
		case <-s.stop:
			return nil
		}
	}
}

// post publishes once, at a random hub, and waits only some seconds.
func (s *soak) post(p *source, set, body, kind, key string) (*hubtest.Receipt, string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(3000+p.rand.IntN(4000))*time.Millisecond)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.c.Hubs[p.rand.IntN(3)].Topic(set), strings.NewReader(body))
	if err != nil {
		return nil, err.Error()
	}
	req.Header.Set("Content-Type", kind)
	req.Header.Set("Idempotency-Key", key)
	resp, err := hubtest.Client.Do(req)
	if err != nil {
		s.report.unanswered.Add(1)
		return nil, err.Error()
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		s.report.unanswered.Add(1)
		return nil, err.Error()
	case resp.StatusCode == http.StatusServiceUnavailable:
		s.report.unavailable.Add(1)
		if strings.Contains(string(b), "/unknown") {
			s.report.unknown.Add(1)
		}
		return nil, string(b)
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Sprintf("refused: %d: %s", resp.StatusCode, b)
	}
	r := new(hubtest.Receipt)
	if err := json.Unmarshal(b, r); err != nil {
		return nil, "refused: " + string(b)
	}
	return r, ""
}
