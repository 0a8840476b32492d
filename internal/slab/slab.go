// Package slab allocates many small values together, where one allocation for each would take
// longer than making the value.
//
// A slab stays in memory until none of its values is referenced. So whoever keeps one value for
// long copies it.
package slab

// most is how many values are allocated together at most.
const most = 64

// A Slab allocates values. One that is kept keeps all that were allocated with it: the first
// is alone, and later ones are up to 64 together. The zero value is ready to use. Only one
// goroutine may use it at a time.
type Slab[T any] struct {
	values []T
}

// New returns a place of its own for v.
func (s *Slab[T]) New(v T) *T {
	place := &s.Make(1)[0]
	*place = v
	return place
}

// Make returns n zero values in a row, or nil if n is 0. To append to them copies them.
func (s *Slab[T]) Make(n int) []T {
	if n == 0 {
		return nil
	}
	begin := len(s.values)
	if n > cap(s.values)-begin {
		begin, s.values = 0, make([]T, 0, max(n, min(2*cap(s.values)+1, most)))
	}
	s.values = s.values[:begin+n]
	return s.values[begin : begin+n : begin+n]
}
