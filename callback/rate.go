package callback

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/rshub/rshub/changelog"
)

// rates counts the requests for the callbacks of each host, minute by minute:
// each makes the hub call that host, and who asks may not be who is called.
type rates struct {
	mu     sync.Mutex
	minute time.Time
	counts map[string]int
}

// take counts one request, or refuses it.
func (r *rates) take(host string, most int, now time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if minute := now.Truncate(time.Minute); !minute.Equal(r.minute) {
		r.minute, r.counts = minute, map[string]int{}
	}
	if r.counts[host] >= most {
		p := changelog.NewStatus(http.StatusTooManyRequests, "too-many-requests",
			fmt.Sprintf("there were %d requests for callbacks at %s within a minute: try again in the next", most, host))
		p.RetryAfter = int(r.minute.Add(time.Minute).Sub(now)/time.Second) + 1
		return p
	}
	r.counts[host]++
	return nil
}
