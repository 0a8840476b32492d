package hubtest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rshub/rshub/e2e/internal/trial"
)

// A Destination is a process with callbacks, see internal/callbacks.
type Destination struct {
	*Process
	program string
	addrs   []string
}

// NewDestination builds the program, and reserves n addresses for it: a hub limits deliveries
// per address.
func NewDestination(t testing.TB, n int) *Destination {
	t.Helper()
	d := &Destination{program: filepath.Join(t.TempDir(), "callbacks")}
	if out, err := exec.Command("go", "build", "-o", d.program, "../internal/callbacks").CombinedOutput(); err != nil {
		t.Fatalf("build callbacks: %v\n%s", err, out)
	}
	for range n {
		d.addrs = append(d.addrs, FreePort(t))
	}
	return d
}

// Start starts the process, possibly again.
func (d *Destination) Start(t testing.TB, flags ...string) {
	t.Helper()
	d.Process = Start(t, nil, nil, d.program, append(flags, d.addrs...)...)
	Until(t, "the callbacks listen", func() error {
		if !strings.Contains(d.Stdout.String(), "listening") {
			return errors.New("not listening yet")
		}
		return nil
	})
}

// URLs returns n callbacks below a path, spread over the addresses.
func (d *Destination) URLs(path string, n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("http://%s%s%d", d.addrs[i%len(d.addrs)], path, i))
	}
	return all
}

// Reports returns the reports of the callbacks by path.
func (d *Destination) Reports(t testing.TB) map[string]trial.Report {
	t.Helper()
	return Get[map[string]trial.Report](t, "http://"+d.addrs[0]+"/report")
}

// SubscribeAll requests all subscriptions concurrently, from the start of the log, at
// alternating hubs. It returns the callbacks of the accepted ones.
func SubscribeAll(t testing.TB, topic string, callbacks []string, hubs ...*Hub) (accepted map[string]bool) {
	t.Helper()
	accepted = map[string]bool{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	var next atomic.Int64
	for range 64 {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(callbacks) {
					return
				}
				body := trial.Form("subscribe", callbacks[i], topic, "rs.since", "start").Encode()
				a, err := Request(http.MethodPost, hubs[i%len(hubs)].URL+"/hub", strings.NewReader(body), trial.AsForm)
				if err == nil && a.Status == http.StatusAccepted {
					mu.Lock()
					accepted[callbacks[i]] = true
					mu.Unlock()
				} else if err == nil && a.Status != http.StatusServiceUnavailable {
					t.Errorf("subscribe %s = %d, want 202 or 503: %s", callbacks[i], a.Status, a.Body)
				}
			}
		})
	}
	wg.Wait()
	return accepted
}

// digestOf returns the digest that a callback reports after it received all entries.
func digestOf(t testing.TB, all []trial.Entry) string {
	t.Helper()
	h := sha256.New()
	for _, e := range all {
		var c struct{ Loc string }
		if err := json.Unmarshal([]byte(e.Text), &c); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(h, "%d %s\n", e.Position, c.Loc)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// WaitDelivered waits until callbacks have received all entries in order, once and without a
// gap. It returns the number of repeated deliveries.
func (d *Destination) WaitDelivered(t testing.TB, callbacks []string, all []trial.Entry) (repeats int) {
	t.Helper()
	want := digestOf(t, all)
	var got map[string]trial.Report
	Until(t, fmt.Sprintf("%d callbacks have received %d changes", len(callbacks), len(all)), func() error {
		got = d.Reports(t)
		late := 0
		for _, u := range callbacks {
			r := got[trial.PathOf(u)]
			if len(r.Faults) > 0 {
				t.Fatalf("%s: %q", u, r.Faults)
			}
			if r.Entries < len(all) {
				late++
			}
		}
		if late > 0 {
			return fmt.Errorf("%d callbacks are behind", late)
		}
		return nil
	})
	for _, u := range callbacks {
		r := got[trial.PathOf(u)]
		if r.Digest != want || r.Entries != len(all) || len(r.Gaps) > 0 || r.Denied > 0 {
			t.Errorf("report of %s = %+v, want %d entries with digest %s, no gaps, no denials", u, r, len(all), want)
		}
		repeats += r.Repeats
	}
	return repeats
}

// WaitVerified waits until all callbacks are verified.
func (d *Destination) WaitVerified(t testing.TB, callbacks []string) {
	t.Helper()
	Until(t, strconv.Itoa(len(callbacks))+" callbacks are verified", func() error {
		got := d.Reports(t)
		for _, u := range callbacks {
			if got[trial.PathOf(u)].Verified == 0 {
				return trial.ErrNotYet
			}
		}
		return nil
	})
}
