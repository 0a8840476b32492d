package callback

import "testing"

func TestBatchSize(t *testing.T) {
	var a batchSize
	a.succeed(1000)
	if a != (batchSize{}) {
		t.Errorf("without a refusal it is %+v", a)
	}
	for changes := 1000; changes > 1; changes = int(a.limit) {
		a.refuse(changes)
	}
	if int(a.limit) != 1 {
		t.Errorf("after refusals it is %+v", a)
	}
	for range 10 {
		a.succeed(1000)
	}
	if int(a.limit) != 0 {
		t.Errorf("after ten successes it is %+v", a)
	}
	for range 1000 { // a hard limit of 100 changes
		if int(a.limit) == 0 || a.limit > 100 {
			changes := int(a.limit)
			if changes == 0 {
				changes = 1000
			}
			a.refuse(changes)
		} else {
			a.succeed(1000)
		}
	}
	if a.patience != maxPatience-1 {
		t.Errorf("with a hard limit it is %+v", a)
	}
}
