package testutil

import (
	"testing"
	"time"
)

// Until waits until done returns true. It fails the test after a minute; what describes the
// condition.
func Until(t testing.TB, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); <-tick.C {
		if done() {
			return
		}
	}
	t.Fatalf("timeout: %s", what)
}
