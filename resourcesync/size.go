package resourcesync

// maxChange bounds Size of a change that is published. One change is never divided, so
// this is also the most by which a bound in bytes can be passed. A line of NDJSON that a hub
// writes is never longer, and NDJSONReader takes it.
const maxChange = 1 << 20

// What a change, a link and an attribute take besides their text: in memory, and as
// punctuation, names, numbers and times in JSON or XML.
const (
	changeSize = 320
	linkSize   = 190
	attrSize   = 60
)

// Size returns how many bytes a valid change takes at most: as an entry of a hub's
// JSON, as one of a hub's XML, or in memory. It counts every field, as it is written
// with its escapes. It is no estimate, so whatever is cut by Size keeps its bound.
//
// Size may be more than the change takes: by changeSize, linkSize for each link and
// attrSize for each attribute, and besides by a factor of two at most.
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

// textSize returns the length of a text that XML can carry, with the longer of its
// escapes in JSON and in XML.
func textSize(s string) int {
	n := len(s)
	for i := plain(s); i < len(s); i++ {
		n += int(escapes[s[i]])
	}
	return n
}

// escapes has for each byte how many bytes its escape has more than the byte itself:
// a quote is &quot; in XML, and a backslash is two in JSON.
var escapes = [256]uint8{'"': 5, '&': 4, '<': 3, '>': 3, '\t': 4, '\n': 4, '\r': 4, '\\': 1}
