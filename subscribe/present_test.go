package subscribe

import (
	"testing"

	"github.com/rshub/rshub/changelog"
)

// BenchmarkPresent measures what a look at 10,000 WebSockets costs, which each
// reading of the metrics takes; what the hub says of each is left out.
func BenchmarkPresent(b *testing.B) {
	s := New(nil, nil, Options{Behind: func(string, changelog.Cursor) (uint64, int64) { return 1, 1 }})
	const conns = 10_000
	for i := range conns {
		s.wheel[i%wheelSlots][&conn{server: s, key: groupKey{set: "a"}}] = struct{}{}
	}
	b.ReportAllocs()
	for b.Loop() {
		if p := s.present(); p[byWebSocket].followers != conns {
			b.Fatalf("%+v", p)
		}
	}
}
