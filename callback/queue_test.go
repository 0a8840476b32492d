package callback

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/callback/subscription"
)

// A visitor is a sub with a subscriber in a ready queue.
type visitor struct {
	*sub
	subscriber string
	standing   standing
}

func newVisitor(q *readyQueue, subscriber, host, address string, of standing) visitor {
	h := q.host("http://" + host + "/")
	q.setAddress(h, address)
	return visitor{&sub{host: h}, subscriber, of}
}

func (v visitor) push(q *readyQueue) { q.push(v.sub, v.subscriber, v.standing) }

// popAll returns the permits that are available.
func popAll(q *readyQueue) (all []*permit) {
	for p := q.pop(); p != nil; p = q.pop() {
		all = append(all, p)
	}
	return all
}

// checkEmpty fails the test if anything is left in a queue without visitors.
func checkEmpty(t *testing.T, q *readyQueue) {
	t.Helper()
	if n := len(q.hosts) + len(q.groups) + len(q.semaphores) + len(q.waiting) + q.inUse(); n != 0 {
		t.Errorf("got %d hosts, %d groups, %d semaphores, %d subscribers and %d permits in the queue, want none", len(q.hosts), len(q.groups), len(q.semaphores), len(q.waiting), q.inUse())
	}
}

// If permits are scarce, subscribers take turns, and so do the hosts of a subscriber.
func TestReadyQueueOrder(t *testing.T) {
	for _, tt := range []struct {
		name       string
		total      int
		push, want string // subscriber@host; the first letter of a host is its address
	}{
		{"one permit", 1,
			"x@a1 x@a1 x@a2 x@a3 y@a1 x@b1 x@b1",
			"x@a1 y@a1 x@a2 x@a3 x@b1 x@a1 x@b1"},
		{"permits of a subscriber at a host", 100,
			strings.Repeat("x@a1 ", 10) + "y@a1 x@a2",
			"x@a1 y@a1 x@a2 " + strings.TrimSpace(strings.Repeat("x@a1 ", 9))},
		{"two subscribers with many callbacks", 2,
			strings.Repeat("x@a1 ", 4) + strings.Repeat("y@b1 ", 4),
			strings.TrimSpace(strings.Repeat("x@a1 y@b1 ", 4))},
	} {
		t.Run(tt.name, func(t *testing.T) {
			q := newReadyQueue(tt.total)
			names := map[*sub]string{}
			for name := range strings.FieldsSeq(tt.push) {
				subscriber, host, _ := strings.Cut(name, "@")
				v := newVisitor(q, subscriber, host, host[:1], proven)
				names[v.sub] = name
				v.push(q)
			}
			var order []string
			for running := popAll(q); len(running) > 0; running = append(running[1:], popAll(q)...) {
				order = append(order, names[running[0].sub])
				q.release(running[0])
				q.leaveHost(running[0].sub.host)
			}
			if got := strings.Join(order, " "); got != tt.want {
				t.Errorf("got order %s, want %s", got, tt.want)
			}
			checkEmpty(t, q)
		})
	}
}

// All limits hold at any time, every sub gets a permit unless it is removed, and a permit that is
// released is used again.
func TestReadyQueueLimits(t *testing.T) {
	t.Parallel()
	const n, total = 8_000, 200
	q := newReadyQueue(total)
	random := rand.New(rand.NewPCG(1, 2))
	all := map[*sub]visitor{}
	var waiting []visitor
	for i := range n {
		address := random.IntN(8)
		v := newVisitor(q, fmt.Sprint("subscriber", random.IntN(3)), fmt.Sprintf("host%d-%d", address, random.IntN(5)), fmt.Sprint("address", address), standing(i%int(standings)))
		all[v.sub] = v
		waiting = append(waiting, v)
		v.push(q)
	}
	started, removed, most := 0, 0, 0
	var running []*permit
	for {
		more := popAll(q)
		started += len(more)
		if running = append(running, more...); len(running) == 0 {
			break
		}
		most = max(most, len(running))
		used := map[string][standings]int{}
		for _, p := range running {
			v := all[p.sub]
			for _, key := range []string{"", v.host.address, v.host.address + v.subscriber, v.host.address + v.subscriber + v.host.name} {
				u := used[key]
				u[p.standing]++
				used[key] = u
			}
		}
		for _, p := range running {
			v := all[p.sub]
			for key, limit := range map[string]int{"": total, v.host.address: 64, v.host.address + v.subscriber: 32, v.host.address + v.subscriber + v.host.name: 8} {
				if u := used[key]; u[proven]+u[untried]+u[doubtful] > limit || u[untried] > limit/4 || u[doubtful] > limit/4 {
					t.Fatalf("%q uses %v permits, want at most %d", key, u, limit)
				}
			}
		}
		if v := waiting[random.IntN(n)]; q.remove(v.sub) {
			q.leaveHost(v.host)
			removed++
		}
		for range 1 + random.IntN(20) {
			if len(running) > 0 {
				i := random.IntN(len(running))
				p := running[i]
				running[i] = running[len(running)-1]
				running = running[:len(running)-1]
				q.release(p)
				q.leaveHost(p.sub.host)
			}
		}
	}
	if started+removed != n || removed < 100 || most < 150 {
		t.Errorf("got %d permits and %d removed subs, at most %d permits at once; want %d in total, 100 removed and 150 at once", started, removed, most, n)
	}
	checkEmpty(t, q)
}

// Callbacks that hang use no permits of those that are new or proven.
func TestReadyQueueProbation(t *testing.T) {
	q := newReadyQueue(64)
	push := func(name string, n int, of standing) {
		for i := range n {
			host := fmt.Sprint(name, i)
			newVisitor(q, name, host, host, of).push(q)
		}
	}
	push("tarpit", 100, doubtful)
	hanging := popAll(q)
	push("new", 30, untried)
	push("good", 30, proven)
	if others := popAll(q); len(hanging) != 16 || len(others) != 46 {
		t.Errorf("got permits for %d that hang and %d others, want 16 and 46", len(hanging), len(others))
	}
}

// A subscriber with many hosts at an address does not delay another one there, and no group is forgotten
// when the address of a host changes.
func TestReadyQueueAddress(t *testing.T) {
	q := newReadyQueue(1000)
	for i := range 300 {
		newVisitor(q, "flood", fmt.Sprint("flood", i), "A", untried).push(q)
	}
	running := popAll(q)
	if len(running) != subscriberAddressCalls/4 {
		t.Fatalf("got %d permits for one subscriber at one address, want %d", len(running), subscriberAddressCalls/4)
	}
	other := newVisitor(q, "other", "other", "A", untried)
	other.push(q)
	if p := q.pop(); p == nil || p.sub != other.sub {
		t.Fatal("got no permit for another subscriber at the address")
	}
	for name, h := range q.hosts {
		if name == "flood299:80" || name == "flood298:80" {
			q.setAddress(h, "B")
		}
	}
	served := len(running)
	for len(running) > 0 {
		q.release(running[0])
		more := popAll(q)
		running = append(running[1:], more...)
		served += len(more)
	}
	if served != 300 {
		t.Errorf("got %d permits, want 300", served)
	}
}

func TestStandingOf(t *testing.T) {
	asked := subscription.Attempt{Kind: "subscribe", Status: 200}
	sent := subscription.Attempt{Kind: "deliver", Status: 204, Took: time.Millisecond}
	slow, failed := sent, sent
	slow.Took, failed.Error = 2*slowAfter, "no response in time"
	for _, tt := range []struct {
		last   []subscription.Attempt
		failed int
		want   standing
	}{
		{nil, 0, untried}, {nil, 1, doubtful}, {[]subscription.Attempt{asked}, 0, untried}, {[]subscription.Attempt{sent}, 0, proven}, {[]subscription.Attempt{sent, asked}, 0, proven},
		{[]subscription.Attempt{sent, slow}, 0, doubtful}, {[]subscription.Attempt{sent, failed}, 1, doubtful}, {[]subscription.Attempt{failed, sent}, 0, proven}, {[]subscription.Attempt{sent, asked}, 3, doubtful},
	} {
		if got := standingOf(tt.last, tt.failed); got != tt.want {
			t.Errorf("standingOf(%+v, %d) = %d, want %d", tt.last, tt.failed, got, tt.want)
		}
	}
}
