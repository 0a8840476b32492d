package resourcesync

import "strings"

// Clone returns a copy of c that shares no memory with it. The strings of a decoded
// change are parts of a longer text, and each of them keeps all of it in memory, even an
// empty one. A caller that keeps a change longer than that text clones it.
func (c *Change) Clone() Change {
	clone := *c
	clone.Loc = strings.Clone(c.Loc)
	clone.Change = c.Change.clone()
	clone.Changefreq = strings.Clone(c.Changefreq)
	clone.Hash = strings.Clone(c.Hash)
	clone.Length = cloneLength(c.Length)
	clone.Type = strings.Clone(c.Type)
	clone.Encoding = strings.Clone(c.Encoding)
	clone.Path = strings.Clone(c.Path)
	clone.Attrs = cloneAttrs(c.Attrs)
	if c.Links != nil {
		clone.Links = make([]Link, len(c.Links))
	}
	for i := range c.Links {
		l := c.Links[i]
		l.Rel = strings.Clone(l.Rel)
		l.Href = strings.Clone(l.Href)
		l.Hash = strings.Clone(l.Hash)
		l.Length = cloneLength(l.Length)
		l.Type = strings.Clone(l.Type)
		l.Encoding = strings.Clone(l.Encoding)
		l.Path = strings.Clone(l.Path)
		l.Profile = strings.Clone(l.Profile)
		l.Attrs = cloneAttrs(l.Attrs)
		clone.Links[i] = l
	}
	return clone
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
	if attrs == nil {
		return nil
	}
	clone := make([]Attr, len(attrs))
	for i, a := range attrs {
		clone[i] = Attr{strings.Clone(a.Namespace), strings.Clone(a.Name), strings.Clone(a.Value)}
	}
	return clone
}
