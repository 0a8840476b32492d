package access

import (
	"sync"
	"testing"
	"time"
)

// A fakeAuthenticator is an Authenticator whose keys change.
type fakeAuthenticator struct {
	Authenticator
	mu      sync.Mutex
	version uint64
}

func (a *fakeAuthenticator) Version() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.version
}

// A stream can start and end while a sweep is verifying the token of another stream, which takes
// long.
func TestWhileDuringSweep(t *testing.T) {
	t.Parallel()
	keys := &fakeAuthenticator{}
	w := NewWatch(keys)
	verifying, verified := make(chan struct{}), make(chan struct{})
	first := true
	slow := Caller{Name: "slow"}
	slow.refresh = func() (Caller, error) {
		if first { // in While
			first = false
			return slow, nil
		}
		close(verifying)
		<-verified
		return Caller{}, ExpiredToken()
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
		t.Error("While() blocks until the end of the sweep")
	}
	close(verified)
	<-swept
	<-other
	select {
	case err := <-ended:
		if err == nil {
			t.Error("onRevoked(nil), want an error")
		}
	default:
		t.Error("While(): onRevoked was not called")
	}
}
