package callback

import (
	"testing"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/e2e/internal/trial"
)

// TestStopWhileCallbacksHang stops a hub while callbacks keep their answers back: the hub
// gives them up after a second, though they have 15.
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
	begin := time.Now()
	h.Stop(t)
	took := time.Since(begin)
	if t.Logf("it took %v", took); took > 7*time.Second { // most of it is the machine's
		t.Error("that is too long")
	}
}
