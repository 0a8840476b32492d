package access

import (
	"sync"
	"testing"
	"time"
)

// A reloaded is an Authenticator whose keys change.
type reloaded struct {
	Authenticator
	mu      sync.Mutex
	version uint64
}

func (r *reloaded) Version() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.version
}

// TestWhileDuringSweep starts and ends a stream while a sweep verifies the token of another
// one, which takes long.
func TestWhileDuringSweep(t *testing.T) {
	t.Parallel()
	keys := &reloaded{}
	w := NewWatch(keys)
	verifying, verified := make(chan struct{}), make(chan struct{})
	first := true
	slow := Caller{Name: "slow"}
	slow.now = func() (Caller, error) {
		if first { // in While
			first = false
			return slow, nil
		}
		close(verifying)
		<-verified
		return Caller{}, Expired()
	}
	ended := make(chan error, 1)
	release := w.While(NewContext(t.Context(), slow), func(Caller) error { return nil }, func(err error) { ended <- err })
	defer release()

	keys.mu.Lock()
	keys.version++
	keys.mu.Unlock()
	swept := make(chan struct{})
	go func() { defer close(swept); w.sweep() }()
	<-verifying
	other := make(chan struct{})
	go func() {
		defer close(other)
		w.While(NewContext(t.Context(), Caller{Name: "other"}), func(Caller) error { return nil }, func(err error) { t.Error(err) })()
	}()
	select {
	case <-other:
	case <-time.After(30 * time.Second):
		t.Error("a stream starts only after the sweep")
	}
	close(verified)
	<-swept
	<-other
	select {
	case err := <-ended:
		if err == nil {
			t.Error("end(nil), want an error")
		}
	default:
		t.Error("a caller without a right goes on")
	}
}
