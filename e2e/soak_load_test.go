package e2e

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
)

// A ledger is what was acknowledged of one set, since the last checkpoint.
type ledger struct {
	mu      sync.Mutex
	settled uint64           // up to here all was compared
	texts   map[uint64]entry // by position; without a datetime but for a batch's last
	last    uint64           // the newest position
	deleted bool             // the set is being deleted, so that gone is right
}

func (l *ledger) head() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// add notes an acknowledged batch.
func (l *ledger) add(r *receipt, texts []string) (first uint64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first, _, err = splitCursor(r.First)
	last, datetime, lerr := splitCursor(r.Cursor)
	if err != nil || lerr != nil || r.Count != len(texts) || last != first+uint64(len(texts))-1 {
		return 0, fmt.Errorf("the receipt %+v for %d changes", r, len(texts))
	}
	if l.texts == nil {
		l.texts = map[uint64]entry{}
	}
	for i, text := range texts {
		p := first + uint64(i)
		if old, ok := l.texts[p]; ok || p <= l.settled {
			return 0, fmt.Errorf("position %d was acknowledged for %q already, now for %q", p, old.text, text)
		}
		l.texts[p] = entry{position: p, text: text}
	}
	l.texts[last] = entry{last, datetime, texts[len(texts)-1]}
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
		e, err := parseEntry([]byte(line))
		if err != nil {
			return err
		}
		lines, texts = append(lines, line), append(texts, e.text)
	}
	body, kind := `{"changes":[`+strings.Join(lines, ",")+`]}`, "application/json"
	if p.rand.IntN(3) == 0 {
		body, kind = strings.Join(lines, "\n")+"\n", "application/x-ndjson"
	}
	key := fmt.Sprintf("%d-%d", p.number, i)
	deadline := time.Now().Add(2 * patience)
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
			if p.rand.IntN(10) == 0 { // once more: it is the same answer, or none
				if again, _ := s.post(p, set, body, kind, key); again != nil && (!again.Replayed || again.First != r.First || again.Cursor != r.Cursor) {
					return fmt.Errorf("%s of %s is answered %+v, and then %+v", key, set, r, again)
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
func (s *soak) post(p *source, set, body, kind, key string) (*receipt, string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(3000+p.rand.IntN(4000))*time.Millisecond)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.c.hubs[p.rand.IntN(3)].topic(set), strings.NewReader(body))
	if err != nil {
		return nil, err.Error()
	}
	req.Header.Set("Content-Type", kind)
	req.Header.Set("Idempotency-Key", key)
	resp, err := client.Do(req)
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
	r := new(receipt)
	if err := json.Unmarshal(b, r); err != nil {
		return nil, "refused: " + string(b)
	}
	return r, ""
}

// A reader is a follower that goes to a random hub with its cursor each time,
// and begins anew when it is told that its cursor is gone.
type reader struct {
	*follower
	change string // the only kind of change that it follows; empty: all
	manner string // "", slow or restless
	rand   *rand.Rand
	cancel context.CancelFunc
	done   chan struct{}
	skips  [][2]uint64 // what it was told is gone: behind the first, up to the second. mu guards it
	gones  int         // times that it was told so. mu guards it
	total  int         // entries that were compared
}

func (r *reader) name() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s of %s %s", r.manner, r.way, r.set, r.change))
}

func (s *soak) read(way, set, change, manner string) {
	f := &follower{way: way, set: set, cursor: "start"}
	if change != "" {
		f.query = "&change=" + change
	}
	r := &reader{follower: f, change: change, manner: manner, rand: rand.New(rand.NewPCG(s.seed, uint64(2000+len(s.readers)))), done: make(chan struct{})}
	s.readers = append(s.readers, r)
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	rest := func(d time.Duration) {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
	if manner == "slow" {
		f.pace = func() {
			rest(5 * time.Millisecond)
			if r.rand.IntN(100) == 0 {
				rest(min(s.most, time.Duration(r.rand.IntN(8000))*time.Millisecond))
			}
		}
	}
	go func() {
		defer close(r.done)
		for ctx.Err() == nil {
			f.hub = s.c.hubs[r.rand.IntN(3)]
			some, stop := ctx, context.CancelFunc(func() {})
			if manner == "restless" {
				some, stop = context.WithTimeout(ctx, time.Duration(100+r.rand.IntN(3000))*time.Millisecond)
			}
			err := f.connect(some)
			stop()
			if ctx.Err() == nil {
				s.over(r, err)
			}
			rest(20 * time.Millisecond)
		}
	}()
}

// over notes how a connection ended. Gone is right where retention has passed
// the cursor, or where the set is being deleted.
func (s *soak) over(r *reader, err error) {
	gone := strings.HasPrefix(err.Error(), errGone.Error())
	l := s.ledgers[r.set]
	l.mu.Lock()
	deleted := l.deleted
	l.mu.Unlock()
	at, _, _ := splitCursor(r.at())
	var floor uint64
	if gone && !deleted {
		for _, h := range s.c.hubs {
			if v, err := state(h, r.set); err == nil {
				floor, _, _ = splitCursor(v.Floor)
				break
			}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ends = append(r.ends, err.Error()); len(r.ends) > 3 {
		r.ends = r.ends[1:]
	}
	switch {
	case r.diverged > 0:
		r.fault("it was told that the memory diverged")
	case !gone:
	case !deleted && floor <= at:
		r.fault("its cursor %s is gone, and the floor is %d: %v", r.cursor, floor, err)
	default:
		if r.gones++; !deleted {
			r.skips = append(r.skips, [2]uint64{at, floor})
		} else {
			r.skips = nil
		}
		r.cursor, r.begun = "start", false
	}
}
