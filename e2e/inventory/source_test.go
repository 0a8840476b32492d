package inventory

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// A source publishes, and remembers which change is at which position: that is all it
// takes to know what the set holds.
type source struct {
	set  string
	name string // of this life of the set

	mu      sync.Mutex
	batches int
	log     map[uint64]line
	head    string // the cursor of the newest change
	fold    fold   // of the log up to folded
	folded  uint64
}

func newSource(set string) *source {
	return &source{set: set, name: set, log: map[uint64]line{}, fold: fold{}}
}

// publish publishes lines of JSON as one batch. It tries again until the hub has it, with
// a key, because the hub may be killed meanwhile.
func (s *source) publish(t testing.TB, h *hubtest.Hub, lines [][]byte) {
	t.Helper()
	if err := s.send(h, lines); err != nil {
		t.Fatal(err)
	}
}

// send is publish for who is not the goroutine of a test.
func (s *source) send(h *hubtest.Hub, lines [][]byte) error {
	s.mu.Lock()
	s.batches++
	key := fmt.Sprintf("Idempotency-Key: %s-%d", s.name, s.batches)
	s.mu.Unlock()
	body := append(bytes.Join(lines, []byte("\n")), '\n')
	var r hubtest.Receipt
	err := until(func() error {
		a, err := hubtest.Request(http.MethodPost, h.Topic(s.set), bytes.NewReader(body), hubtest.AsNDJSON, key)
		if err != nil {
			return err
		}
		if a.Status != http.StatusOK {
			return fmt.Errorf("publishing is answered %d: %s", a.Status, a.Body)
		}
		return json.Unmarshal(a.Body, &r)
	})
	if err != nil {
		return err
	}
	first, _, err := hubtest.SplitCursor(r.First)
	if err != nil || r.Count != len(lines) {
		return fmt.Errorf("the receipt %+v for %d changes: %v", r, len(lines), err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, text := range lines {
		l := parseLine(text)
		l.Position = first + uint64(i)
		s.log[l.Position] = l
	}
	if positionOf(r.Cursor) > positionOf(s.head) {
		s.head = r.Cursor
	}
	return nil
}

// until waits until cond returns nil, or returns its last error. It is hubtest.Until for
// who is not the goroutine of a test.
func until(cond func() error) error {
	deadline := time.Now().Add(hubtest.Patience)
	for {
		err := cond()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		<-time.After(5 * time.Millisecond)
	}
}

// positionOf is the position in a cursor, 0 if there is none.
func positionOf(cursor string) uint64 {
	p, _, err := hubtest.SplitCursor(cursor)
	if err != nil {
		return 0
	}
	return p
}

// at returns what the set held at a cursor. It waits until the receipts of all changes up
// to there have come. The caller does not change what it gets.
func (s *source) at(t testing.TB, cursor string) (f fold) {
	t.Helper()
	hubtest.Until(t, "the source knows what it published up to "+cursor, func() (err error) {
		f, err = s.tryAt(cursor)
		return err
	})
	return f
}

func (s *source) tryAt(cursor string) (fold, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	to := positionOf(cursor)
	if to < s.folded {
		s.fold, s.folded = fold{}, 0
	}
	for ; s.folded < to; s.folded++ {
		l, ok := s.log[s.folded+1]
		if !ok {
			return nil, fmt.Errorf("nobody published what is at position %d of %s", s.folded+1, s.set)
		}
		s.fold.apply(l)
	}
	return maps.Clone(s.fold), nil
}

// atTime returns what the set held at the datetime of a change.
func (s *source) atTime(t testing.TB, h *hubtest.Hub, at time.Time) fold {
	t.Helper()
	m := hubtest.Get[hubtest.Message](t, h.Topic(s.set)+"?limit=1&since="+url.QueryEscape(at.Format(time.RFC3339Nano)))
	if len(m.Changes) == 0 {
		t.Fatalf("there is no change at %v", at)
	}
	var l struct {
		line
		Datetime time.Time
	}
	if err := json.Unmarshal(m.Changes[0], &l); err != nil || !l.Datetime.Equal(at) {
		t.Fatalf("the change at %v is %s: %v", at, m.Changes[0], err)
	}
	return s.at(t, fmt.Sprintf("%d-%d", l.Position, at.UnixMicro()))
}

// newest returns the cursor of the newest change, and what the set holds after it.
func (s *source) newest(t testing.TB) (string, fold) {
	t.Helper()
	head := s.newestCursor()
	return head, s.at(t, head)
}

func (s *source) newestCursor() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.head
}

// complete makes the set if there is none, and says that the hub knows all resources.
func (s *source) complete(t testing.TB, h *hubtest.Hub) {
	t.Helper()
	hubtest.Until(t, "the hub takes it that "+s.set+" is complete", func() error {
		a, err := hubtest.Request(http.MethodPut, h.URL+"/sets/"+s.set, bytes.NewReader([]byte(`{"title":"`+s.set+`","complete":true}`)), hubtest.AsJSON)
		if err == nil && a.Status != http.StatusOK {
			err = fmt.Errorf("it is answered %d: %s", a.Status, a.Body)
		}
		return err
	})
}

// proved waits until the hub looks at the newest change or a later one, and checks that
// what it sees is the fold of all changes up to there.
func (s *source) proved(t testing.TB, h *hubtest.Hub) look {
	t.Helper()
	head, _ := s.newest(t)
	return s.looks(t, h, head, "")
}

func (s *source) looks(t testing.TB, h *hubtest.Hub, from, prefix string) (l look) {
	t.Helper()
	u := h.URL + "/sets/" + s.set + "/audit?from=" + from + "&prefix=" + url.QueryEscape(prefix)
	hubtest.Until(t, "the hub looks at "+from, func() error {
		a, err := hubtest.Request(http.MethodGet, u, nil)
		if err == nil && a.Status != http.StatusOK {
			err = fmt.Errorf("it answers %d: %s", a.Status, a.Body)
		}
		if err != nil {
			return err
		}
		l = look{}
		return json.Unmarshal(a.Body, &l)
	})
	if positionOf(l.Cursor) < positionOf(from) {
		t.Fatalf("the hub looks at %s, and was asked for %s", l.Cursor, from)
	}
	want := s.at(t, l.Cursor).look(prefix)
	if l.Set != s.set || l.Count != want.Count || l.Position != want.Position || l.Content != want.Content {
		t.Fatalf("the hub sees %+v, and the fold of all changes is %+v", l, want)
	}
	return l
}

// resourceLine is the change of a resource with a hash that no other change has.
func resourceLine(loc, change string, nonce uint64) []byte {
	if change == "deleted" {
		return fmt.Appendf(nil, `{"loc":%q,"change":"deleted"}`, loc)
	}
	return fmt.Appendf(nil, `{"loc":%q,"change":%q,"hash":"md5:%032x sha-256:%064x","length":%d,"type":"text/plain"}`, loc, change, nonce, nonce, nonce%100_000)
}

// resources are the first changes of n resources, "name 1" to "name n".
func resources(name string, n int) (lines [][]byte) {
	for i := range n {
		lines = append(lines, resourceLine(locOf(name, i), "created", uint64(i)))
	}
	return lines
}

func locOf(name string, i int) string { return fmt.Sprintf("https://example.org/%s/%06d", name, i+1) }
