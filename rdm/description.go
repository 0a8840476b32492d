package rdm

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/rdm/soif"
	"github.com/rshub/rshub/resourcesync"
)

// documentType is the type of an RD, unless its source gave it another one.
const documentType = "DOCUMENT"

// Attributes of an RD that a change has no field for are kept as foreign attributes. One of
// these holds at most partBytes, so a longer value is kept in parts: the second part is an
// attribute of the same name in partNamespace(2), and so on.
const (
	namespace          = resourcesync.Terms + "rdm/"
	attributeNamespace = namespace + "attribute/"
	templateName       = "template" // in namespace: the type of the object, if it is not documentType
	partBytes          = 1024
	maxParts           = 90
)

func partNamespace(n int) string { return namespace + "part/" + strconv.Itoa(n) + "/" }

// A field is an attribute that a change has a field for.
type field struct {
	name, describes string
	data            string // Data-Type of a schema
	several         bool   // it may have several values
	inView          bool   // it is in the default view
	get             func(e *feed.Entry, add func(value string))
	set             func(c *resourcesync.Change, value string) error // nil: what is sent must be the URL
}

// fields are the attributes that a hub knows, in the order in which it writes them. MD5 comes
// before Hash, which has the other digests.
var fields = []field{
	{name: "Last-Modified", describes: "when the resource was changed last, as its source says", data: "date", inView: true,
		get: func(e *feed.Entry, add func(string)) {
			if !e.Change.Lastmod.IsZero() {
				add(date(e.Change.Lastmod))
			}
		},
		set: func(c *resourcesync.Change, v string) (err error) {
			c.Lastmod, err = parseDate(strings.TrimSpace(v))
			return err
		}},
	{name: "Content-Type", describes: "media type of the resource", data: "varchar", inView: true,
		get: func(e *feed.Entry, add func(string)) { addText(e.Change.Type, add) },
		set: func(c *resourcesync.Change, v string) error { c.Type = v; return nil }},
	{name: "Content-Length", describes: "length of the resource in bytes", data: "int", inView: true,
		get: func(e *feed.Entry, add func(string)) {
			if e.Change.Length != nil {
				add(strconv.FormatInt(*e.Change.Length, 10))
			}
		},
		set: func(c *resourcesync.Change, v string) error {
			n, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
			if err != nil || n < 0 {
				return resourcesync.Invalid("it is a number of bytes, not %q", resourcesync.Shorten(v))
			}
			c.Length = &n
			return nil
		}},
	{name: "Content-Encoding", describes: "content coding of the resource", data: "varchar",
		get: func(e *feed.Entry, add func(string)) { addText(e.Change.Encoding, add) },
		set: func(c *resourcesync.Change, v string) error { c.Encoding = v; return nil }},
	{name: "MD5", describes: "MD5 of the resource in hexadecimal digits", data: "varchar",
		get: func(e *feed.Entry, add func(string)) { md5, _ := hashes(e.Change.Hash); addText(md5, add) },
		set: func(c *resourcesync.Change, v string) error {
			c.Hash = strings.TrimSpace("md5:" + strings.TrimSpace(v) + " " + c.Hash)
			return nil
		}},
	{name: "Hash", describes: "other digests of the resource, as ALGORITHM:HEX, by space", data: "varchar",
		get: func(e *feed.Entry, add func(string)) { _, others := hashes(e.Change.Hash); addText(others, add) },
		set: func(c *resourcesync.Change, v string) error {
			c.Hash = strings.TrimSpace(c.Hash + " " + strings.TrimSpace(v))
			return nil
		}},
	{name: "Link", describes: `a related resource, as <URL>; rel="RELATION"`, data: "varchar", several: true,
		get: func(e *feed.Entry, add func(string)) {
			for i := range e.Change.Links {
				add("<" + e.Change.Links[i].Href + `>; rel="` + e.Change.Links[i].Rel + `"`)
			}
		},
		set: func(c *resourcesync.Change, v string) error {
			links := feed.ParseLinks([]string{v})
			if len(links) != 1 || links[0].Rel == "" {
				return resourcesync.Invalid(`it is one link, like <https://example.org/a>; rel="describedby", not %q`, resourcesync.Shorten(v))
			}
			c.Links = append(c.Links, resourcesync.Link{Rel: links[0].Rel, Href: links[0].URI})
			return nil
		}},
	{name: "RD-Last-Modified", describes: "when the hub accepted the description; what a source sends is kept as the time of its own", data: "date", inView: true,
		get: func(e *feed.Entry, add func(string)) { add(date(e.Time())) },
		set: func(c *resourcesync.Change, v string) (err error) {
			c.Datetime, err = parseDate(strings.TrimSpace(v))
			return err
		}},
	{name: "URL", describes: "URL of the resource, which also stands at the beginning of the object", data: "varchar", inView: true,
		get: func(*feed.Entry, func(string)) {}},
}

func addText(text string, add func(string)) {
	if text != "" {
		add(text)
	}
}

// hashes divides hashes into the first MD5 and the others.
func hashes(all string) (md5, others string) {
	var rest []string
	for one := range strings.FieldsSeq(all) {
		if alg, hex, _ := strings.Cut(one, ":"); md5 == "" && strings.EqualFold(alg, "md5") {
			md5 = hex
		} else {
			rest = append(rest, one)
		}
	}
	return md5, strings.Join(rest, " ")
}

// describe returns the RD of an entry. It has the attributes that RDM can name: not those
// that somebody published as foreign attributes of another namespace.
func describe(e *feed.Entry) *soif.Object {
	o := &soif.Object{Type: documentType, URL: e.Change.Loc}
	for i := range fields {
		var values []string
		fields[i].get(e, func(v string) { values = append(values, v) })
		for n, v := range values {
			name := fields[i].name
			if len(values) > 1 {
				name += "-" + strconv.Itoa(n+1)
			}
			o.Add(name, v)
		}
	}
	attrs := e.Change.Attrs
	for i := range attrs {
		a := &attrs[i]
		switch {
		case a.Namespace == namespace && a.Name == templateName && soif.IsIdentifier(a.Value):
			o.Type = a.Value
		case a.Namespace == attributeNamespace && soif.IsIdentifier(a.Name) && fieldOf(a.Name) == nil:
			o.Add(a.Name, whole(attrs, a))
		}
	}
	return o
}

// whole returns the value of an attribute whose first part is first.
func whole(attrs []resourcesync.Attr, first *resourcesync.Attr) string {
	value := first.Value
	for n := 2; ; n++ {
		part, found := partNamespace(n), false
		for i := range attrs {
			if attrs[i].Name == first.Name && attrs[i].Namespace == part {
				value += attrs[i].Value
				found = true
			}
		}
		if !found {
			return value
		}
	}
}

// fieldOf returns the field of an attribute; nil if a change has none for it.
func fieldOf(name string) *field {
	base, n := soif.Split(name)
	for i := range fields {
		f := &fields[i]
		if strings.EqualFold(f.name, name) || f.several && n > 0 && strings.EqualFold(f.name, base) {
			return f
		}
	}
	return nil
}

// change returns the change that an RD reports. Whether it may be published is not checked.
// An error is a *resourcesync.Error that names the attribute.
func change(o *soif.Object, kind resourcesync.ChangeType) (*resourcesync.Change, error) {
	c := &resourcesync.Change{Loc: o.URL, Change: kind}
	if o.URL == "" {
		return nil, resourcesync.Invalid("it has no URL, so nobody can tell what it describes")
	}
	if o.Type != documentType {
		c.Attrs = append(c.Attrs, resourcesync.Attr{Namespace: namespace, Name: templateName, Value: o.Type})
	}
	given := map[*field]bool{}
	for _, a := range o.Attributes {
		if err := put(c, a, given); err != nil {
			return nil, resourcesync.About("attribute "+resourcesync.Shorten(a.Name), err)
		}
	}
	return c, nil
}

// put puts an attribute of an RD into a change. given has the fields that were there before.
func put(c *resourcesync.Change, a soif.Attribute, given map[*field]bool) error {
	f := fieldOf(a.Name)
	switch {
	case f == nil:
		return keep(c, a)
	case !utf8.ValidString(a.Value):
		return errBinary
	case given[f] && !f.several:
		return resourcesync.Invalid("it is there twice")
	case f.set == nil && a.Value != c.Loc:
		return resourcesync.Invalid("it is %q, which is not the URL at the beginning of the object", resourcesync.Shorten(a.Value))
	case f.set == nil:
		return nil
	}
	given[f] = true
	return f.set(c, a.Value)
}

var errBinary = resourcesync.Invalid("its value is not text in UTF-8, which is all that the hub keeps; leave it out")

// keep puts an attribute that a change has no field for among the foreign ones.
func keep(c *resourcesync.Change, a soif.Attribute) error {
	if !utf8.ValidString(a.Value) {
		return errBinary
	}
	rest, space := a.Value, attributeNamespace
	for n := 1; ; n++ {
		if n > maxParts {
			return resourcesync.Invalid("its value has %d bytes; the hub keeps at most about %d", len(a.Value), maxParts*partBytes)
		}
		cut := min(len(rest), partBytes)
		for cut < len(rest) && !utf8.RuneStart(rest[cut]) {
			cut--
		}
		c.Attrs = append(c.Attrs, resourcesync.Attr{Namespace: space, Name: a.Name, Value: rest[:cut]})
		if rest = rest[cut:]; rest == "" {
			return nil
		}
		space = partNamespace(n + 1)
	}
}
