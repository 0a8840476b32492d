package callback

import (
	"testing"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/e2e/internal/trial"
)

// TestStopWhileCallbacksHang stops a hub while callbacks delay their responses. The hub cancels
// the deliveries after a second, although their timeout is 15.
func TestStopWhileCallbacksHang(t *testing.T) {
	t.Parallel()
	h := hubtest.StartWebSub(t)
	tr := hubtest.NewTrial(t, h)
	tp := tr.Topic()
	var all []*trial.Callback
	for range 3 {
		c := tr.CallbackAt(tr.NewServer(), "")
		tr.Subscribe(c, tp)
		c.Respond(trial.Delivery, trial.Hang)
		all = append(all, c)
	}
	tr.Publish(tp)
	for _, c := range all {
		tr.WaitRequests(c, trial.Delivery, 1)
	}
	start := time.Now()
	h.Stop(t)
	took := time.Since(start)
	if took > 7*time.Second { // allows for a slow machine
		t.Errorf("stopping took %v, want at most 7s", took)
	}
}
