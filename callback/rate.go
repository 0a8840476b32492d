package callback

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/rshub/rshub/changelog"
)

// maxAgain is how many requests about one subscription that there is are taken in
// a minute. It bounds what its subscriber may have its own callback asked.
const maxAgain = 60

// rates counts requests by what they are about, minute by minute: each makes the
// hub call somebody, and who asks may not be who is called.
type rates struct {
	mu     sync.Mutex
	minute time.Time
	counts map[string]int // by what, see take
}

// take counts one request, or refuses it. about ends "there were so many
// requests …".
func (r *rates) take(about string, most int, now time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if minute := now.Truncate(time.Minute); !minute.Equal(r.minute) {
		r.minute, r.counts = minute, map[string]int{}
	}
	if r.counts[about] >= most {
		p := changelog.NewStatus(http.StatusTooManyRequests, "too-many-requests",
			fmt.Sprintf("there were %d requests %s within a minute: try again in the next", most, about))
		p.RetryAfter = int(r.minute.Add(time.Minute).Sub(now)/time.Second) + 1
		return p
	}
	r.counts[about]++
	return nil
}

// admit returns nil when a request may be made: there were not too many, and
// there is room for what it makes. known says whether there is a subscription that
// it is about. Requests about one are counted by themselves, and need no room: so
// nobody can keep it from being renewed by asking for others at its host. Others
// are counted by host, whatever their port: one machine has many.
func (s *Server) admit(ctx context.Context, r *Request) (known bool, err error) {
	_, err = s.registry.Find(ctx, r.ID())
	if err == nil {
		return true, s.rates.take("about subscription "+r.ID().String(), maxAgain, r.At)
	}
	if !errors.Is(err, ErrNoSubscription) {
		return false, err
	}
	host := hostName(r.Callback)
	if r.Mode == Subscribe {
		if full := s.full(r.Set, host); full != nil {
			return false, full
		}
	}
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		return false, fmt.Errorf("the host of a callback: %w", err)
	}
	return false, s.rates.take("for callbacks at "+name, s.opts.MaxRequests, r.At)
}
