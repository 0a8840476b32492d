package resourcesync

import (
	"fmt"
	"iter"
	"strings"
	"unicode"

	"github.com/rshub/rshub/internal/plainjson"
)

// The tags of a change are one attribute of its rs:md: tags, in the namespace of the draft of
// 2012, with a space between two of them. The draft writes them so where an element of another
// standard has them (section 3.1). Where it has an element for each, the schemas of 1.1 allow
// none. As an attribute they pass through whatever keeps and carries a change, and a change
// without tags costs nothing. JSON has an array, "tags".
const (
	draftNS  = "http://resourcesync.org/ns/"
	tagsName = "tags"
)

const (
	maxTags = 32  // tags of an entry; together they have at most maxText bytes. Size counts on so few.
	maxTag  = 256 // bytes of one tag
)

// Tags yields the tags of c: the keywords that the source gave to the resource, in its order.
func (c *Change) Tags() iter.Seq[string] { return strings.FieldsSeq(c.tags()) }

// HasTag reports whether c has a tag.
func (c *Change) HasTag(tag string) bool {
	if len(c.Attrs) == 0 {
		return false
	}
	for t := range c.Tags() {
		if t == tag {
			return true
		}
	}
	return false
}

// SetTags replaces the tags of c. Validate says whether c may have them, except that a tag
// with a space becomes two. SetTags does not write to the array behind c.Attrs.
func (c *Change) SetTags(tags ...string) {
	attrs := make([]Attr, 0, len(c.Attrs)+1)
	for i := range c.Attrs {
		if !isTags(&c.Attrs[i]) {
			attrs = append(attrs, c.Attrs[i])
		}
	}
	c.Attrs = appendTags(attrs, strings.Join(tags, " "))
}

// CheckTag returns the rule that a tag breaks, or "".
func CheckTag(tag string) string {
	switch {
	case tag == "":
		return "a tag is empty"
	case len(tag) > maxTag:
		return fmt.Sprintf("a tag is longer than %d bytes", maxTag)
	case strings.IndexByte(tag, ',') >= 0 || strings.ContainsFunc(tag, unicode.IsSpace):
		return "a tag has no space and no comma, as " + quote(tag) + " has"
	}
	if bad := badText(tag); bad != "" {
		return "tag " + quote(tag) + ": " + bad
	}
	if hasControl(tag) {
		return "a tag has no control characters, as " + quote(tag) + " has"
	}
	return ""
}

// tags returns the value of the attribute, or "".
func (c *Change) tags() string {
	for i := range c.Attrs {
		if isTags(&c.Attrs[i]) {
			return c.Attrs[i].Value
		}
	}
	return ""
}

func isTags(a *Attr) bool { return a.Name == tagsName && a.Namespace == draftNS }

// appendTags appends the attribute with some tags, unless there is none.
func appendTags(attrs []Attr, tags string) []Attr {
	if tags = oneSpace(tags); tags == "" {
		return attrs
	}
	return append(attrs, Attr{draftNS, tagsName, tags})
}

// spaceTags puts one space between tags, if the newest attribute has them. It takes the
// attribute out if it has none, and adds the tags to those of an earlier one.
func spaceTags(attrs []Attr) []Attr {
	n := len(attrs) - 1
	if n < 0 || !isTags(&attrs[n]) {
		return attrs
	}
	tags := oneSpace(attrs[n].Value)
	for i := range attrs[:n] {
		if isTags(&attrs[i]) {
			attrs[i].Value = oneSpace(attrs[i].Value + " " + tags)
			return attrs[:n]
		}
	}
	if tags == "" && n == 0 {
		return nil
	}
	return appendTags(attrs[:n], tags)
}

// addTag appends a tag, to the attribute if it is there. It returns the rule that is broken,
// or "".
func addTag(attrs []Attr, tag string) ([]Attr, string) {
	if rule := CheckTag(tag); rule != "" {
		return attrs, rule
	}
	for i := range attrs {
		if isTags(&attrs[i]) {
			tags := attrs[i].Value + " " + tag
			if rule := tagsRule(tags); rule != "" {
				return attrs, rule
			}
			attrs[i].Value = tags
			return attrs, ""
		}
	}
	return append(attrs, Attr{draftNS, tagsName, tag}), ""
}

// tagsRule returns the rule that the value of the attribute breaks, or "".
func tagsRule(tags string) string {
	if len(tags) > maxText {
		return fmt.Sprintf("the tags of an entry have more than %d bytes together", maxText)
	}
	n := 0
	for rest, more := tags, true; more; n++ {
		var tag string
		before := tags[:len(tags)-len(rest)]
		tag, rest, more = strings.Cut(rest, " ")
		if rule := CheckTag(tag); rule != "" {
			return rule
		}
		for t := range strings.FieldsSeq(before) {
			if t == tag {
				return "tag " + quote(tag) + " is there twice"
			}
		}
	}
	if n > maxTags {
		return tooManyTags
	}
	return ""
}

var tooManyTags = fmt.Sprintf("an entry has at most %d tags", maxTags)

// appendTagsMember appends the member tags. It reports false if the value is none that a
// reader accepts.
func appendTagsMember(dst []byte, tags string) ([]byte, bool) {
	if tagsRule(tags) != "" {
		return dst, false
	}
	dst = append(dst, `,"tags":[`...)
	first := true
	for tag := range strings.SplitSeq(tags, " ") {
		if !first {
			dst = append(dst, ',')
		}
		dst, first = appendQuoted(dst, tag), false
	}
	return append(dst, ']'), true
}

// tags reads the member tags.
func (j *jsonInput) tags(attrs *[]Attr) error {
	if j.null() {
		return j.skip()
	}
	if err := j.open('[', "tags"); err != nil {
		return err
	}
	var tags []string
	for j.dec.PeekKind() != ']' {
		if len(tags) == maxTags {
			return j.fail(tooManyTags)
		}
		var tag string
		if err := j.string("a tag", &tag); err != nil {
			return err
		}
		if rule := CheckTag(tag); rule != "" {
			return j.fail(rule)
		}
		tags = append(tags, tag)
	}
	if len(tags) > 0 {
		all := strings.Join(tags, " ")
		if rule := tagsRule(all); rule != "" {
			return j.fail(rule)
		}
		*attrs = spaceTags(append(*attrs, Attr{draftNS, tagsName, all}))
	}
	return j.close()
}

// plainTags is jsonInput.tags for plain JSON.
func plainTags(in *plainjson.Reader, attrs *[]Attr) {
	var tags []string
	for more := in.Next('[', true); more; more = in.Next('[', false) {
		tag := in.String()
		if len(tags) == maxTags || CheckTag(tag) != "" {
			in.Fail()
			return
		}
		tags = append(tags, tag)
	}
	if len(tags) == 0 {
		return
	}
	all := strings.Join(tags, " ")
	if tagsRule(all) != "" {
		in.Fail()
		return
	}
	*attrs = append(*attrs, Attr{draftNS, tagsName, all})
}
