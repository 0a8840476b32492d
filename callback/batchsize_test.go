package callback

import "testing"

func TestBatchSize(t *testing.T) {
	const most = 1000
	var b batchSize
	check := func(step string, want bool) {
		t.Helper()
		if !want {
			t.Errorf("%s: got %+v", step, b)
		}
	}
	b.succeed(most)
	check("success without a refusal", b == batchSize{})
	for changes := most; changes > 1; changes = int(b.limit) {
		b.refuse(changes)
	}
	check("refusals down to one change", b.limit == 1)
	for range 10 {
		b.succeed(most)
	}
	check("ten successes", b.limit == 0)
	for range 1000 { // the callback accepts at most 100 changes
		switch {
		case b.limit == 0:
			b.refuse(most)
		case b.limit > 100:
			b.refuse(int(b.limit))
		default:
			b.succeed(most)
		}
	}
	check("1,000 deliveries to a callback with a limit", b.patience == maxPatience-1)
}
