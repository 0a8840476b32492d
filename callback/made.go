package callback

import "context"

// An order says what a cut is made for. Its version keeps cuts apart: at a later
// version there may be more to deliver.
type order struct {
	at      point
	filter  *filter
	limit   int
	version int // of the topic
}

// A made is a cut with its order. It is never changed, so topic.made needs no mutex:
// the goroutine that made the cut stores it there, and those that need the same load it.
type made struct {
	order
	cut       *cut
	corrected point // at, or where source.cut moved it
}

// cut is source.cut, at a version of the topic. Deliveries from the same point get the
// same cut, until another cut is made. Engine.mu must not be held, as for source.cut.
func (t *topic) cut(ctx context.Context, at *point, f *filter, limit, version int) (*cut, error) {
	o := order{at: *at, filter: f, limit: limit, version: version}
	m := t.made.Load()
	var err error
	if m == nil || m.order != o {
		m, err = t.making.Do(ctx, o, func() (*made, error) {
			if m := t.made.Load(); m != nil && m.order == o { // another goroutine made it meanwhile
				return m, nil
			}
			m := &made{order: o, corrected: o.at}
			var err error
			if m.cut, err = t.source.cut(ctx, &m.corrected, f, limit, version); err == nil {
				t.made.Store(m)
			}
			return m, err
		})
		if m == nil {
			return nil, err
		}
	}
	*at = m.corrected
	return m.cut, err
}
