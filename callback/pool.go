package callback

// A pool holds the subs of a topic that wait for the same thing. Engine.mu guards the
// pool, and the fields pool and at of its subs.
type pool []*sub

func (p *pool) add(s *sub) {
	s.pool, s.at = p, len(*p)
	*p = append(*p, s)
}

// take empties the pool and returns the subs that were in it.
func (p *pool) take() []*sub {
	all := *p
	*p = nil
	for _, s := range all {
		s.pool = nil
	}
	return all
}

// leaveLocked takes a sub out of the pool that it is in.
func (s *sub) leaveLocked() {
	if s.pool == nil {
		return
	}
	all := *s.pool
	n := len(all) - 1
	all[s.at] = all[n]
	all[s.at].at = s.at
	all[n] = nil
	*s.pool, s.pool = all[:n], nil
}
