package resourcesync

import "strings"

// Clone returns a copy of c that shares no memory with it. The strings of a decoded
// change are substrings of the document, and each of them, even an empty one, keeps the
// whole document in memory. Callers that retain a change longer than its document
// should clone it.
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

// cloneSlice is like slices.Clone, but a copy without elements does not share the
// array of s either. It preserves nil.
func cloneSlice[T any](s []T) []T {
	if s == nil {
		return nil
	}
	return append(make([]T, 0, len(s)), s...)
}

// cloneStrings replaces each string with a copy of its own.
func cloneStrings(strs ...*string) {
	for _, s := range strs {
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
