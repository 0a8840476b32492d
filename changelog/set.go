package changelog

import "github.com/rshub/rshub/resourcesync"

// CheckSet returns nil when name can name a set: [a-z0-9][a-z0-9._-]{0,62}. The
// error is a *resourcesync.Error with ErrInvalid.
func CheckSet(name string) error {
	ok := len(name) >= 1 && len(name) <= 63
	for i := 0; ok && i < len(name); i++ {
		c := name[i]
		ok = c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || i > 0 && (c == '.' || c == '_' || c == '-')
	}
	if ok {
		return nil
	}
	return Invalid("%q cannot name a set: a name is 1 to 63 of a-z, 0-9, dot, hyphen and underscore, and begins with a letter or a digit", shorten(name))
}

// Size estimates what the publish takes in memory and as text, in bytes.
func (p *Publish) Size() int {
	n := 0
	for i := range p.Changes {
		n += size(&p.Changes[i])
	}
	return n
}

// size estimates what a change takes in memory and as text, in bytes, without
// looking at more than its strings' lengths.
func size(c *resourcesync.Change) int {
	n := 200 + len(c.Loc) + len(c.Hash) + len(c.Type)
	for i := range c.Links {
		l := &c.Links[i]
		n += 150 + len(l.Href) + len(l.Hash) + attrsSize(l.Attrs)
	}
	return n + attrsSize(c.Attrs)
}

func attrsSize(attrs []resourcesync.Attr) int {
	n := 0
	for i := range attrs {
		n += 50 + len(attrs[i].Namespace) + len(attrs[i].Value)
	}
	return n
}
