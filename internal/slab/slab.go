// Package slab allocates many small values together, where separate allocations would take longer
// than computing the values.
//
// A chunk stays in memory while any of its values is referenced. So a caller that retains a single
// value for long should copy it.
package slab

// maxChunk is the maximum number of values that are allocated together.
const maxChunk = 64

// A Slab allocates values. A retained value retains all values of its chunk: the first chunk has
// one value, later ones up to 64. The zero value is ready to use. It is not safe for concurrent
// use.
type Slab[T any] struct {
	values []T
}

// New returns a pointer to a new copy of v.
func (s *Slab[T]) New(v T) *T {
	place := &s.Make(1)[0]
	*place = v
	return place
}

// Make returns n consecutive zero values, or nil if n is 0. Appending to them copies them.
func (s *Slab[T]) Make(n int) []T {
	if n == 0 {
		return nil
	}
	begin := len(s.values)
	if n > cap(s.values)-begin {
		begin, s.values = 0, make([]T, 0, max(n, min(2*cap(s.values)+1, maxChunk)))
	}
	s.values = s.values[:begin+n]
	return s.values[begin : begin+n : begin+n]
}
