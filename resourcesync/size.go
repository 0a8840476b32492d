package resourcesync

// maxChange is the maximum Size of a change that is published. One change is never
// divided, so a bound in bytes may be exceeded by up to maxChange. A line of NDJSON that
// a hub writes is never longer than this, and NDJSONReader accepts it.
const maxChange = 1 << 20

// The bytes of a change, a link and an attribute in addition to their text: in memory, and
// as punctuation, names, numbers and times in JSON or XML.
const (
	changeSize = 320
	linkSize   = 190
	attrSize   = 60
)

// Size returns an upper bound of the bytes that a valid change occupies as an entry of a
// hub's JSON, as an entry of a hub's XML, or in memory. It counts every field with its
// escapes. It is never too low, so a batch that is cut by Size keeps its bound.
//
// Size may be too high by changeSize, plus linkSize per link and attrSize per attribute,
// and beyond that by a factor of two at most.
func (c *Change) Size() int {
	n := changeSize + textSize(c.Loc) + textSize(c.Hash) + textSize(c.Type) + textSize(c.Encoding) + textSize(c.Path) + attrsSize(c.Attrs)
	for i := range c.Links {
		l := &c.Links[i]
		n += linkSize + textSize(l.Rel) + textSize(l.Href) + textSize(l.Hash) + textSize(l.Type) + textSize(l.Encoding) +
			textSize(l.Path) + textSize(l.Profile) + attrsSize(l.Attrs)
	}
	return n
}

func attrsSize(attrs []Attr) int {
	n := 0
	for i := range attrs {
		a := &attrs[i]
		n += attrSize + textSize(a.Namespace) + len(a.Name) + textSize(a.Value)
	}
	return n
}

// textSize returns the length of s, which XML must be able to represent, with each
// character escaped as in JSON or as in XML, whichever is longer.
func textSize(s string) int {
	n := len(s)
	for i := range len(s) {
		n += int(escapes[s[i]])
	}
	return n
}

// escapes maps each byte to the bytes that its escape adds: a quote is &quot; in XML, and
// a backslash is doubled in JSON.
var escapes = [256]uint8{'"': 5, '&': 4, '<': 3, '>': 3, '\t': 4, '\n': 4, '\r': 4, '\\': 1}
