package subscribe

import (
	"testing"
	"time"
)

// A group rests only if it was busy more than half of the time, and never long.
func TestPace(t *testing.T) {
	const ms = time.Millisecond
	for _, test := range []struct {
		name          string
		delivery, gap time.Duration // each takes so long, and the next begins so much later
		rest          time.Duration
	}{
		{"always busy", 4 * ms, 0, 4 * ms},
		{"busy most of the time", 4 * ms, ms, 4 * ms},
		{"long deliveries", 40 * ms, 0, 10 * ms},
		{"short deliveries", ms - 1, 0, 0},
		{"busy less than half of the time", 4 * ms, 6 * ms, 0},
		{"idle", 4 * ms, time.Hour, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			var p pace
			now := time.Unix(1, 0)
			for i := range 100 {
				p.begin(now)
				now = now.Add(test.delivery)
				rest := p.end(now)
				switch {
				case i == 0 && rest > 0:
					t.Fatalf("rests %v after the first delivery", rest)
				case i > 10 && rest != test.rest:
					t.Fatalf("rests %v after delivery %d, want %v", rest, i, test.rest)
				}
				now = now.Add(max(rest/2, test.gap))
			}
			for i := range 4 { // whoever has time again soon does not rest any more
				now = now.Add(time.Hour)
				p.begin(now)
				now = now.Add(test.delivery)
				if rest := p.end(now); rest > 0 && i > 1 {
					t.Errorf("rests %v though it had time", rest)
				}
			}
		})
	}
}
