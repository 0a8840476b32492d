package faults

import (
	"fmt"
	"sync"

	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/e2e/internal/trial"
)

// A ledger is what was acknowledged of one set, since the last checkpoint.
type ledger struct {
	mu      sync.Mutex
	settled uint64                 // up to here all was compared
	entries map[uint64]trial.Entry // by position; without a datetime but for a batch's last
	last    uint64                 // the newest position
	deleted bool                   // the set is being deleted, so that gone is right
}

func newLedger() *ledger { return &ledger{entries: map[uint64]trial.Entry{}} }

// head returns the newest position, and whether the set is being deleted.
func (l *ledger) head() (last uint64, deleted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last, l.deleted
}

// delete notes that the set is being deleted.
func (l *ledger) delete() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deleted = true
}

// settle notes that all up to the newest position was compared, or that all know that the set
// is deleted: then that is 0.
func (l *ledger) settle(last uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.settled, l.last, l.deleted = last, last, false
	clear(l.entries)
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
		p := first + uint64(i)
		if old, ok := l.entries[p]; ok || p <= l.settled {
			return 0, fmt.Errorf("position %d was acknowledged for %q already, now for %q", p, old.Text, text)
		}
		l.entries[p] = trial.Entry{Position: p, Text: text}
	}
	l.entries[last] = trial.Entry{Position: last, Datetime: datetime, Text: texts[len(texts)-1]}
	l.last = max(l.last, last)
	return first, nil
}

// since returns what was acknowledged since the last checkpoint, completed by what the hubs
// list. It is an error that they list something else, or that a position is missing.
func (l *ledger) since(listed map[uint64]trial.Entry) (all []trial.Entry, err error) {
	for p := l.settled + 1; p <= l.last; p++ {
		e, ok := l.entries[p]
		if !ok {
			return nil, fmt.Errorf("position %d was not acknowledged to anybody, and %d was", p, l.last)
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
