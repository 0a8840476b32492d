package testutil

import (
	"runtime"
	"testing"
)

// KeptBytes returns by how many bytes the live heap grows while the result of make is
// reachable. No other goroutine may allocate in the meantime, so tests that call it are
// not parallel.
func KeptBytes(t testing.TB, make func() any) int64 {
	t.Helper()
	before := live()
	v := make()
	after := live()
	runtime.KeepAlive(v)
	return after - before
}

// live returns the bytes of all reachable objects.
func live() int64 {
	for range 3 { // pools and finalizers need more than one collection
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
