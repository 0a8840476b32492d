// Package slab allocates many small values together, where an allocation for each would take
// longer than making the value.
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
	n := len(s.values)
	if n == cap(s.values) {
		n, s.values = 0, make([]T, 0, min(2*n+1, most))
	}
	s.values = append(s.values, v)
	return &s.values[n]
}
