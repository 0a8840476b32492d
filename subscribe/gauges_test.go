package subscribe

import (
	"testing"

	"github.com/rshub/rshub/feed"
)

// BenchmarkCensus measures what a census of 10,000 WebSockets costs. Each reading
// of the metrics takes one. What the hub says of each WebSocket is left out.
func BenchmarkCensus(b *testing.B) {
	s := New(nil, nil, Options{Behind: func(string, feed.Cursor) (uint64, int64) { return 1, 1 }})
	const conns = 10_000
	for i := range conns {
		s.wheel[i%wheelSlots][&conn{server: s, key: groupKey{set: "a"}}] = struct{}{}
	}
	b.ReportAllocs()
	for b.Loop() {
		if n := s.Following()[""].Followers; n != conns {
			b.Fatalf("%d followers", n)
		}
	}
}
