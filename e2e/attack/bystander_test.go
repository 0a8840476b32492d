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

// A bystander is a well-behaved client: it repeatedly publishes changes, follows an event stream,
// has a callback, and probes the readiness of the hub. It has another address than the attackers.
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

// Addresses of the bystander and of the attackers, with their callbacks.
var (
	bystanderAddr = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}
	attackerAddr  = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 3)}
)

// serveAt starts a server at an address of this machine.
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
	transport := &http.Transport{DialContext: (&net.Dialer{LocalAddr: bystanderAddr, Timeout: 10 * time.Second}).DialContext}
	t.Cleanup(transport.CloseIdleConnections)
	b := &bystander{t: t, hub: h, token: token, client: &http.Client{Transport: transport, Timeout: hubtest.Timeout}}
	b.publish(0)
	b.callback = serveAt(t, bystanderAddr, http.HandlerFunc(b.serveCallback)).URL
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

// publish publishes change i, which must be accepted at the first attempt.
func (b *bystander) publish(i int) {
	start := time.Now()
	b.mu.Lock()
	b.sent = append(b.sent, start)
	b.mu.Unlock()
	status, text := b.request(http.MethodPost, b.hub.Topic(calmSet), fmt.Sprintf(`{"changes":[{"loc":"https://calm.example.org/%d","change":"created"}]}`, i), "application/json")
	if status != http.StatusOK {
		b.fault("publish %d: got %d %s", i, status, text)
	}
	b.mu.Lock()
	b.published = append(b.published, time.Since(start))
	b.mu.Unlock()
}

func (b *bystander) probe() {
	start := time.Now()
	if a, err := trial.Exchange(b.client, http.MethodGet, b.hub.Ops+"/readyz", nil); err != nil || a.Status != http.StatusOK {
		b.fault("probe: got %+v, %v", a, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.probed = append(b.probed, time.Since(start))
}

// receive records that a change has arrived. Each change must arrive once, in order.
func (b *bystander) receive(who string, all *[]time.Duration, loc string) {
	i, err := strconv.Atoi(loc[strings.LastIndexByte(loc, '/')+1:])
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil || i != len(*all) {
		b.faults = append(b.faults, fmt.Sprintf("%s: got %s after %d changes", who, loc, len(*all)))
		return
	}
	*all = append(*all, time.Since(b.sent[i]))
}

// follow follows over a single event stream.
func (b *bystander) follow(ctx context.Context) {
	f := &hubtest.Follower{Transport: hubtest.ByEvents, Set: calmSet, Hub: b.hub, Cursor: "start", Headers: []string{"Authorization: Bearer " + b.token}, HTTP: b.client.Transport}
	f.OnMessage = func() { // after each event
		b.mu.Lock()
		received := len(b.followed)
		b.mu.Unlock()
		for _, e := range f.Snapshot()[received:] {
			var c struct{ Loc string }
			if err := json.Unmarshal([]byte(e.Text), &c); err != nil {
				b.fault("invalid event %s", e.Text)
			}
			b.receive("the follower", &b.followed, c.Loc)
		}
	}
	if err := f.Connect(ctx); ctx.Err() == nil || len(f.Faults) > 0 {
		b.fault("event stream ended: %v, %q", err, f.Faults)
	}
}

// subscribe subscribes a callback at a path to the set calm.
func (b *bystander) subscribe(path string) {
	form := url.Values{"hub.mode": {"subscribe"}, "hub.topic": {b.hub.Topic(calmSet)}, "hub.callback": {b.callback + path}, "rs.since": {"start"}}
	if resp, body := b.request(http.MethodPost, b.hub.URL+"/hub", form.Encode(), "application/x-www-form-urlencoded"); resp != http.StatusAccepted {
		b.fault("subscribe %s: got %d %s", path, resp, body)
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
		b.fault("invalid delivery: %v", err)
	}
	if r.Header.Get("RS-Attempt") != "1" {
		b.fault("got delivery attempt %s, want 1", r.Header.Get("RS-Attempt"))
	}
	for _, u := range list.URL {
		b.receive("the callback", &b.called, u.Loc)
	}
}

// latencies are the median latencies of a publish, its event, its delivery, and a probe.
type latencies [4]time.Duration

var latencyNames = [4]string{"publish", "event", "delivery", "probe"}

// measure returns the latencies while do runs, and during at least 40 publishes.
func (b *bystander) measure(do func()) latencies {
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
	hubtest.Until(b.t, "the bystander has enough measurements", func() error {
		b.mu.Lock()
		defer b.mu.Unlock()
		if len(b.faults) > 0 {
			return nil
		}
		for i, l := range lists {
			if enough := []int{40, 40, 40, 5}[i]; len(*l)-before[i] < enough {
				return fmt.Errorf("got only %d of %s", len(*l)-before[i], latencyNames[i])
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

// max returns the maximum of each latency.
func (l latencies) max(others latencies) latencies {
	for i, d := range others {
		l[i] = max(l[i], d)
	}
	return l
}

// checkUnaffected checks that nothing was lost or refused, and that each median is within three
// times its baseline. Medians below 50 ms are noise of the machine. If medians are longer, it
// returns false, and fails the test if retries is zero.
func (b *bystander) checkUnaffected(t *testing.T, calm, now latencies, retries int) (ok bool) {
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
		t.Logf("%s: %v, baseline %v", latencyNames[i], d.Round(10*time.Microsecond), calm[i].Round(10*time.Microsecond))
		if d > 3*max(calm[i], 17*time.Millisecond) {
			t.Logf("median latency of a %s = %v, baseline %v", latencyNames[i], d, calm[i])
			ok = false
		}
	}
	if !ok && retries == 0 {
		t.Error("median latencies are too long in all attempts")
		return true
	}
	return ok
}

// checkAll waits until every published change has arrived everywhere.
func (b *bystander) checkAll() {
	b.t.Helper()
	b.stop() // stops publishing; deliveries continue
	b.wg.Wait()
	hubtest.Until(b.t, "the callback has all changes", func() error {
		b.mu.Lock()
		defer b.mu.Unlock()
		if len(b.called) != len(b.sent) {
			return fmt.Errorf("got %d of %d: %q", len(b.called), len(b.sent), b.faults)
		}
		return nil
	})
}
