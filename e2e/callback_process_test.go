package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// A destination is a process with callbacks, see the program in callbacks.
type destination struct {
	*process
	program string
	addrs   []string
}

// newDestination builds the program, and finds it n addresses: a hub bounds what
// it does at one.
func newDestination(t testing.TB, n int) *destination {
	t.Helper()
	d := &destination{program: filepath.Join(t.TempDir(), "callbacks")}
	if out, err := exec.Command("go", "build", "-o", d.program, "./callbacks").CombinedOutput(); err != nil {
		t.Fatalf("build the callbacks: %v\n%s", err, out)
	}
	for range n {
		d.addrs = append(d.addrs, freePort(t))
	}
	return d
}

// start starts the process, anew or again.
func (d *destination) start(t testing.TB, flags ...string) {
	t.Helper()
	d.process = start(t, nil, nil, d.program, append(flags, d.addrs...)...)
	until(t, "the callbacks listen", func() error {
		if !strings.Contains(d.stdout.String(), "listening") {
			return errors.New("they do not")
		}
		return nil
	})
}

// urls are n callbacks below a path, spread over the addresses.
func (d *destination) urls(path string, n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("http://%s%s%d", d.addrs[i%len(d.addrs)], path, i))
	}
	return all
}

// A report is what one callback has taken, as its process says.
type report struct {
	Verified, Denied, Deliveries, Entries, Repeats int
	Position                                       uint64
	Digest                                         string
	Gaps, Faults                                   []string
}

// reports returns them by path.
func (d *destination) reports(t testing.TB) map[string]report {
	t.Helper()
	return get[map[string]report](t, "http://"+d.addrs[0]+"/report")
}

// subscribeAll asks for all subscriptions at once, from the start, at one hub
// after the other, and returns those that were accepted.
func subscribeAll(t testing.TB, topic string, callbacks []string, hubs ...*hub) (accepted map[string]bool) {
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
				body := form("subscribe", callbacks[i], topic, "rs.since", "start").Encode()
				a, err := request(http.MethodPost, hubs[i%len(hubs)].url+"/hub", strings.NewReader(body), asForm)
				if err == nil && a.status == http.StatusAccepted {
					mu.Lock()
					accepted[callbacks[i]] = true
					mu.Unlock()
				} else if err == nil && a.status != http.StatusServiceUnavailable {
					t.Errorf("%s is answered %d: %s", callbacks[i], a.status, a.body)
				}
			}
		})
	}
	wg.Wait()
	return accepted
}

// digestOf is what a callback that has taken all says of it.
func digestOf(t testing.TB, all []entry) string {
	t.Helper()
	h := sha256.New()
	for _, e := range all {
		var c struct{ Loc string }
		if err := json.Unmarshal([]byte(e.text), &c); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(h, "%d %s\n", e.position, c.Loc)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// allTook waits until callbacks have taken all that the memory has, in order,
// once and without a gap, and returns how many deliveries were repeated.
func (d *destination) allTook(t testing.TB, callbacks []string, all []entry) (repeats int) {
	t.Helper()
	want := digestOf(t, all)
	var got map[string]report
	until(t, fmt.Sprintf("%d callbacks have taken %d changes", len(callbacks), len(all)), func() error {
		got = d.reports(t)
		late := 0
		for _, u := range callbacks {
			r := got[pathOf(u)]
			if len(r.Faults) > 0 {
				t.Fatalf("%s: %q", u, r.Faults)
			}
			if r.Entries < len(all) {
				late++
			}
		}
		if late > 0 {
			return fmt.Errorf("%d have not", late)
		}
		return nil
	})
	for _, u := range callbacks {
		r := got[pathOf(u)]
		if r.Digest != want || r.Entries != len(all) || len(r.Gaps) > 0 || r.Denied > 0 {
			t.Errorf("%s has taken something else: %+v", u, r)
		}
		repeats += r.Repeats
	}
	return repeats
}

// full says whether the test runs in its full size, as for a soak: alone, and
// with more patience.
func full(t *testing.T) bool {
	if os.Getenv("RSHUB_E2E_FULL") == "" {
		t.Parallel()
		return false
	}
	patience *= 10
	t.Cleanup(func() { patience /= 10 })
	return true
}
