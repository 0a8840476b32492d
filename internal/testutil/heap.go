package testutil

import (
	"runtime"
	"testing"
)

// RetainedBytes returns by how many bytes the live heap grows while the result of make is
// reachable. No other goroutine may allocate at the same time, so tests that call it must not be
// parallel.
func RetainedBytes(t testing.TB, make func() any) int64 {
	t.Helper()
	before := liveBytes()
	v := make()
	after := liveBytes()
	runtime.KeepAlive(v)
	return after - before
}

// liveBytes returns the size of all reachable objects in bytes.
func liveBytes() int64 {
	for range 3 { // pools and finalizers need more than one collection
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
