package slab

import "testing"

func TestNew(t *testing.T) {
	var s Slab[int]
	var all []*int
	for i := range 1000 {
		all = append(all, s.New(i))
	}
	for i, p := range all {
		if *p != i {
			t.Fatalf("value %d is %d", i, *p)
		}
	}
	if n := testing.AllocsPerRun(100, func() {
		for i := range most {
			s.New(i)
		}
	}); n > 2 {
		t.Errorf("%d values take %v allocations", most, n)
	}
}
