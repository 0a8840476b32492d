package attack

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/e2e/internal/trial"
)

// A bystander uses a hub as one should: it publishes a change, follows an event stream, has
// a callback, and looks whether the hub is ready, again and again. It comes from another
// address than those who attack.
type bystander struct {
	t      *testing.T
	hub    *hubtest.Hub
	token  string
	client *http.Client

	callback string // URL

	mu        sync.Mutex
	sent      []time.Time // by number of the change
	published []time.Duration
	followed  []time.Duration
	called    []time.Duration
	probed    []time.Duration
	faults    []string

	stop context.CancelFunc
	wg   sync.WaitGroup
}

const calmSet = "calm"

// place is where the bystander is, with its callback; lair is where attackers have theirs.
var (
	place = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}
	lair  = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 3)}
)

// serveAt serves at an address of this machine.
func serveAt(t *testing.T, at *net.TCPAddr, h http.Handler) *httptest.Server {
	l, err := net.ListenTCP("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(h)
	_ = s.Listener.Close()
	s.Listener = l
	s.Start()
	t.Cleanup(s.Close)
	return s
}

func newBystander(t *testing.T, h *hubtest.Hub, token string) *bystander {
	transport := &http.Transport{DialContext: (&net.Dialer{LocalAddr: place, Timeout: 10 * time.Second}).DialContext}
	t.Cleanup(transport.CloseIdleConnections)
	b := &bystander{t: t, hub: h, token: token, client: &http.Client{Transport: transport, Timeout: hubtest.Timeout}}
	b.publish(0)
	b.callback = serveAt(t, place, http.HandlerFunc(b.serveCallback)).URL
	b.subscribe("/calm")
	ctx, cancel := context.WithCancel(context.Background())
	b.stop = cancel
	b.wg.Go(func() { b.follow(ctx) })
	b.wg.Go(func() {
		for i := 1; ctx.Err() == nil; i++ {
			b.publish(i)
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	})
	b.wg.Go(func() {
		for ctx.Err() == nil {
			b.probe()
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	})
	t.Cleanup(func() { cancel(); b.wg.Wait() })
	return b
}

func (b *bystander) fault(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults = append(b.faults, fmt.Sprintf(format, args...))
}

func (b *bystander) request(method, url, body, mediaType string) (int, string) {
	a, err := trial.Exchange(b.client, method, url, strings.NewReader(body), "Authorization: Bearer "+b.token, "Content-Type: "+mediaType)
	if err != nil {
		return 0, err.Error()
	}
	return a.Status, string(a.Body)
}

// publish publishes change i. Each has to be taken at the first attempt.
func (b *bystander) publish(i int) {
	begun := time.Now()
	b.mu.Lock()
	b.sent = append(b.sent, begun)
	b.mu.Unlock()
	status, text := b.request(http.MethodPost, b.hub.Topic(calmSet), fmt.Sprintf(`{"changes":[{"loc":"https://calm.example.org/%d","change":"created"}]}`, i), "application/json")
	if status != http.StatusOK {
		b.fault("publish %d: %d %s", i, status, text)
	}
	b.mu.Lock()
	b.published = append(b.published, time.Since(begun))
	b.mu.Unlock()
}

func (b *bystander) probe() {
	begun := time.Now()
	if a, err := trial.Exchange(b.client, http.MethodGet, b.hub.Ops+"/readyz", nil); err != nil || a.Status != http.StatusOK {
		b.fault("probe: %+v, %v", a, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.probed = append(b.probed, time.Since(begun))
}

// took notes that a change has come. Changes come in order, each once.
func (b *bystander) took(who string, all *[]time.Duration, loc string) {
	i, err := strconv.Atoi(loc[strings.LastIndexByte(loc, '/')+1:])
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil || i != len(*all) {
		b.faults = append(b.faults, fmt.Sprintf("%s got %s, and has %d changes", who, loc, len(*all)))
		return
	}
	*all = append(*all, time.Since(b.sent[i]))
}

// follow follows over one event stream.
func (b *bystander) follow(ctx context.Context) {
	f := &hubtest.Follower{Transport: hubtest.ByEvents, Set: calmSet, Hub: b.hub, Cursor: "start", Headers: []string{"Authorization: Bearer " + b.token}, HTTP: b.client.Transport}
	f.OnMessage = func() { // after each event
		b.mu.Lock()
		taken := len(b.followed)
		b.mu.Unlock()
		for _, e := range f.Snapshot()[taken:] {
			var c struct{ Loc string }
			if err := json.Unmarshal([]byte(e.Text), &c); err != nil {
				b.fault("an event has %s", e.Text)
			}
			b.took("the follower", &b.followed, c.Loc)
		}
	}
	if err := f.Connect(ctx); ctx.Err() == nil || len(f.Faults) > 0 {
		b.fault("the event stream ended: %v, %q", err, f.Faults)
	}
}

// subscribe asks for the changes of calm, for a callback at a path.
func (b *bystander) subscribe(path string) {
	form := url.Values{"hub.mode": {"subscribe"}, "hub.topic": {b.hub.Topic(calmSet)}, "hub.callback": {b.callback + path}, "rs.since": {"start"}}
	if resp, body := b.request(http.MethodPost, b.hub.URL+"/hub", form.Encode(), "application/x-www-form-urlencoded"); resp != http.StatusAccepted {
		b.fault("subscribe %s: %d %s", path, resp, body)
	}
}

func (b *bystander) serveCallback(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		_, _ = io.WriteString(w, r.URL.Query().Get("hub.challenge"))
		return
	}
	var list struct {
		URL []struct {
			Loc string `xml:"loc"`
		} `xml:"url"`
	}
	if err := xml.NewDecoder(r.Body).Decode(&list); err != nil {
		b.fault("a delivery: %v", err)
	}
	if r.Header.Get("RS-Attempt") != "1" {
		b.fault("delivery attempt %s", r.Header.Get("RS-Attempt"))
	}
	for _, u := range list.URL {
		b.took("the callback", &b.called, u.Loc)
	}
}

// latencies are medians: of a publish, of its event, of its delivery, of a probe.
type latencies [4]time.Duration

var whats = [4]string{"publish", "event", "delivery", "probe"}

// while returns the medians of what happens while do runs, and at least 40 publishes long.
func (b *bystander) while(do func()) latencies {
	b.t.Helper()
	lists := []*[]time.Duration{&b.published, &b.followed, &b.called, &b.probed}
	count := func() (n [4]int) {
		b.mu.Lock()
		defer b.mu.Unlock()
		for i, l := range lists {
			n[i] = len(*l)
		}
		return n
	}
	before := count()
	do()
	hubtest.Until(b.t, "the bystander has published some", func() error {
		b.mu.Lock()
		defer b.mu.Unlock()
		if len(b.faults) > 0 {
			return nil
		}
		for i, l := range lists {
			if enough := []int{40, 40, 40, 5}[i]; len(*l)-before[i] < enough {
				return fmt.Errorf("only %d of %s", len(*l)-before[i], whats[i])
			}
		}
		return nil
	})
	b.mu.Lock()
	defer b.mu.Unlock()
	var medians latencies
	for i, l := range lists {
		these := slices.Clone((*l)[before[i]:])
		slices.Sort(these)
		if len(these) > 0 {
			medians[i] = these[len(these)/2]
		}
	}
	return medians
}

// max returns the longer ones.
func (l latencies) max(others latencies) latencies {
	for i, d := range others {
		l[i] = max(l[i], d)
	}
	return l
}

// unharmed checks that nothing was lost or refused, and that medians are within three
// times those of calm. What is below 50 ms is nobody's trouble, and mostly this machine's.
// If medians are longer it returns false, and fails if this is not to be tried again.
func (b *bystander) unharmed(t *testing.T, calm, now latencies, again int) (ok bool) {
	t.Helper()
	b.mu.Lock()
	faults := b.faults
	b.faults = nil
	b.mu.Unlock()
	for _, f := range faults {
		t.Error(f)
	}
	ok = true
	for i, d := range now {
		t.Logf("%s: %v, when calm %v", whats[i], d.Round(10*time.Microsecond), calm[i].Round(10*time.Microsecond))
		if d > 3*max(calm[i], 17*time.Millisecond) {
			t.Logf("the median of a %s is %v, and %v when calm", whats[i], d, calm[i])
			ok = false
		}
	}
	if !ok && again == 0 {
		t.Error("the medians are too long, each time that this was tried")
		return true
	}
	return ok
}

// all checks at the end that everything that was published has come everywhere.
func (b *bystander) all() {
	b.t.Helper()
	b.stop() // publishes no more; the callback goes on
	b.wg.Wait()
	hubtest.Until(b.t, "the callback has all changes", func() error {
		b.mu.Lock()
		defer b.mu.Unlock()
		if len(b.called) != len(b.sent) {
			return fmt.Errorf("it has %d of %d: %q", len(b.called), len(b.sent), b.faults)
		}
		return nil
	})
}
