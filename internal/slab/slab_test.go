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
			t.Fatalf("value %d = %d", i, *p)
		}
	}
	if n := testing.AllocsPerRun(100, func() {
		for i := range maxChunk {
			s.New(i)
		}
	}); n > 2 {
		t.Errorf("%d values took %v allocations", maxChunk, n)
	}
}

func TestMake(t *testing.T) {
	var s Slab[int]
	var all [][]int
	for i := range 300 {
		values := s.Make(i % 100)
		if (values == nil) != (i%100 == 0) || cap(values) != i%100 {
			t.Fatalf("Make(%d) = %v, cap %d", i%100, values, cap(values))
		}
		for at := range values {
			if values[at] != 0 {
				t.Fatalf("got new value %d, want 0", values[at])
			}
			values[at] = i
		}
		all = append(all, values)
	}
	for i, values := range all {
		for _, v := range values {
			if v != i {
				t.Fatalf("value of slice %d = %d", i, v)
			}
		}
	}
}
