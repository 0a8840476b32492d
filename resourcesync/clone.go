package resourcesync

import "strings"

// Clone returns a copy of c that shares no memory with it. The strings of a decoded
// change are parts of a longer text, and each of them keeps all of it in memory, even an
// empty one. A caller that keeps a change longer than that text clones it.
func (c *Change) Clone() Change {
	clone := *c
	clone.Change, clone.Length, clone.Attrs = c.Change.clone(), cloneLength(c.Length), cloneAttrs(c.Attrs)
	cloneStrings(&clone.Loc, &clone.Changefreq, &clone.Hash, &clone.Type, &clone.Encoding, &clone.Path)
	clone.Links = cloneSlice(c.Links)
	for i := range clone.Links {
		l := &clone.Links[i]
		l.Length, l.Attrs = cloneLength(l.Length), cloneAttrs(l.Attrs)
		cloneStrings(&l.Rel, &l.Href, &l.Hash, &l.Type, &l.Encoding, &l.Path, &l.Profile)
	}
	return clone
}

// cloneSlice is slices.Clone, except that an empty copy does not share memory either.
func cloneSlice[T any](s []T) []T {
	if s == nil {
		return nil
	}
	return append(make([]T, 0, len(s)), s...)
}

func cloneStrings(of ...*string) {
	for _, s := range of {
		*s = strings.Clone(*s)
	}
}

func (t ChangeType) clone() ChangeType {
	switch t {
	case Created:
		return Created
	case Updated:
		return Updated
	case Deleted:
		return Deleted
	}
	return ChangeType(strings.Clone(string(t)))
}

func cloneLength(n *int64) *int64 {
	if n == nil {
		return nil
	}
	return new(*n)
}

func cloneAttrs(attrs []Attr) []Attr {
	clone := cloneSlice(attrs)
	for i := range clone {
		cloneStrings(&clone[i].Namespace, &clone[i].Name, &clone[i].Value)
	}
	return clone
}
