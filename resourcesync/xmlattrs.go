package resourcesync

import (
	"encoding/xml"
	"strconv"
	"time"
)

// parseMetadata parses the attributes of an rs:md into it.
func (r *Reader) parseMetadata(it *Item, attrs []xml.Attr) error {
	for i := range attrs {
		a := &attrs[i]
		if a.Name.Space != "" {
			if err := r.parseForeign(&it.Attrs, a, "rs:md"); err != nil {
				return err
			}
			continue
		}
		var err error
		switch v := trim(a.Value); a.Name.Local {
		case "capability":
			it.Capability = v
		case "change":
			if it.Change.Change = ChangeType(v); !it.Change.Change.isKnown() {
				it.Change.Change = ""
				err = r.tolerate(r.tokens.errorf("%s", unknownChange(v)))
			}
		case "datetime":
			err = r.parseTime(&it.Datetime, "datetime", v)
		case "at":
			err = r.parseTime(&it.At, "at", v)
		case "completed":
			err = r.parseTime(&it.Completed, "completed", v)
		case "from":
			err = r.parseTime(&it.From, "from", v)
		case "until":
			err = r.parseTime(&it.Until, "until", v)
		case "hash":
			it.Hash = normalizeSpace(v)
		case "length":
			it.Length, err = r.parseLength(v)
		case "type":
			it.Type = v
		case "encoding":
			it.Encoding = v
		case "path":
			it.Path = v
		case "modified":
			// The schema allows modified here, but the standard gives it no meaning.
		default:
			err = r.tolerate(r.tokens.errorf("rs:md: unknown attribute %s", quote(a.Name.Local)))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// parseLink parses the attributes of an rs:ln and appends the link to links.
func (r *Reader) parseLink(links *[]Link, attrs []xml.Attr) error {
	if len(*links) == maxLinks {
		return r.tolerate(r.tokens.errorf("%s", tooManyLinks))
	}
	var l Link
	for i := range attrs {
		a := &attrs[i]
		if a.Name.Space != "" {
			if err := r.parseForeign(&l.Attrs, a, "rs:ln"); err != nil {
				return err
			}
			continue
		}
		var err error
		switch v := trim(a.Value); a.Name.Local {
		case "rel":
			l.Rel = v
		case "href":
			l.Href = v
		case "pri":
			var bad error
			if l.Pri, bad = strconv.Atoi(v); bad != nil || l.Pri < 1 || l.Pri > maxPri {
				l.Pri = 0
				err = r.tolerate(r.tokens.errorf("pri: got %s, want 1 to %d", quote(v), maxPri))
			}
		case "modified":
			err = r.parseTime(&l.Modified, "modified", v)
		case "hash":
			l.Hash = normalizeSpace(v)
		case "length":
			l.Length, err = r.parseLength(v)
		case "type":
			l.Type = v
		case "encoding":
			l.Encoding = v
		case "path":
			l.Path = v
		case "profile":
			l.Profile = v
		default:
			err = r.tolerate(r.tokens.errorf("rs:ln: unknown attribute %s", quote(a.Name.Local)))
		}
		if err != nil {
			return err
		}
	}
	if l.Rel == "" || l.Href == "" {
		return r.tolerate(r.tokens.errorf("rs:ln: rel or href is missing"))
	}
	*links = append(*links, l)
	return nil
}

// parseForeign appends an attribute in a foreign namespace to dst, with its value unchanged.
// It drops those for which isDropped is true. element names the element, for errors.
func (r *Reader) parseForeign(dst *[]Attr, a *xml.Attr, element string) error {
	switch {
	case isDropped(a.Name.Space):
		return nil
	case a.Name.Space == rsNS || a.Name.Space == sitemapNS:
		return r.tolerate(r.tokens.errorf("attribute %s of %s must not have a prefix", quote(a.Name.Local), element))
	}
	if msg := attrNameViolation(a.Name.Space, a.Name.Local); msg != "" {
		return r.tolerate(r.tokens.errorf("%s", msg))
	}
	*dst = append(*dst, Attr{a.Name.Space, a.Name.Local, a.Value})
	return nil
}

// parseTime parses the time of the attribute or element with the given name.
func (r *Reader) parseTime(dst *time.Time, name, value string) error {
	t, msg := parseTime(value)
	if msg != "" {
		return r.tolerate(r.tokens.errorf("%s: got %s, %s", name, quote(value), msg))
	}
	*dst = t
	return nil
}

// parseLength parses a length in bytes. It returns nil if the Reader tolerates an invalid one.
func (r *Reader) parseLength(value string) (*int64, error) {
	n, ok := parseLength(value)
	if !ok {
		return nil, r.tolerate(r.tokens.errorf("length: got %s, want a whole number of bytes", quote(value)))
	}
	return &n, nil
}

// parseLength parses a length, which has only digits and fits in an int64.
func parseLength(s string) (int64, bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil && n >= 0 && isDigit(s[0])
}
