package resourcesync

import (
	"encoding/xml"
	"strconv"
	"time"
)

// metadata reads the attributes of an rs:md.
func (r *Reader) metadata(it *Item, attrs []xml.Attr) error {
	for i := range attrs {
		a := &attrs[i]
		if a.Name.Space != "" {
			if err := r.foreign(&it.Attrs, a, "rs:md"); err != nil {
				return err
			}
			continue
		}
		var err error
		switch v := trim(a.Value); a.Name.Local {
		case "capability":
			it.Capability = v
		case "change":
			if it.Change.Change = ChangeType(v); !it.Change.Change.known() {
				it.Change.Change = ""
				err = r.mistake(r.in.fail("%s", unknownChange(v)))
			}
		case "datetime":
			err = r.time(&it.Datetime, "datetime", v)
		case "at":
			err = r.time(&it.At, "at", v)
		case "completed":
			err = r.time(&it.Completed, "completed", v)
		case "from":
			err = r.time(&it.From, "from", v)
		case "until":
			err = r.time(&it.Until, "until", v)
		case "hash":
			it.Hash = oneSpace(v)
		case "length":
			it.Length, err = r.length(v)
		case "type":
			it.Type = v
		case "encoding":
			it.Encoding = v
		case "path":
			it.Path = v
		case "modified":
			// The schema allows modified here. The standard gives it no meaning.
		default:
			err = r.mistake(r.in.fail("rs:md has no attribute %s", quote(a.Name.Local)))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// link adds the rs:ln with the given attributes to links.
func (r *Reader) link(links *[]Link, attrs []xml.Attr) error {
	if len(*links) == maxLinks {
		return r.mistake(r.in.fail("%s", tooManyLinks))
	}
	var l Link
	for i := range attrs {
		a := &attrs[i]
		if a.Name.Space != "" {
			if err := r.foreign(&l.Attrs, a, "rs:ln"); err != nil {
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
				err = r.mistake(r.in.fail("pri is 1 to 999999, not %s", quote(v)))
			}
		case "modified":
			err = r.time(&l.Modified, "modified", v)
		case "hash":
			l.Hash = oneSpace(v)
		case "length":
			l.Length, err = r.length(v)
		case "type":
			l.Type = v
		case "encoding":
			l.Encoding = v
		case "path":
			l.Path = v
		case "profile":
			l.Profile = v
		default:
			err = r.mistake(r.in.fail("rs:ln has no attribute %s", quote(a.Name.Local)))
		}
		if err != nil {
			return err
		}
	}
	if l.Rel == "" || l.Href == "" {
		return r.mistake(r.in.fail("rs:ln has a rel and an href"))
	}
	*links = append(*links, l)
	return nil
}

// foreign keeps an attribute of a foreign namespace, with its value unchanged.
func (r *Reader) foreign(dst *[]Attr, a *xml.Attr, of string) error {
	switch {
	case dropped(a.Name.Space):
		return nil
	case a.Name.Space == rsNS || a.Name.Space == sitemapNS:
		return r.mistake(r.in.fail("attribute %s of %s stands without a prefix", quote(a.Name.Local), of))
	}
	if rule := attrNameRule(a.Name.Space, a.Name.Local); rule != "" {
		return r.mistake(r.in.fail("%s", rule))
	}
	*dst = append(*dst, Attr{a.Name.Space, a.Name.Local, a.Value})
	return nil
}

func (r *Reader) time(dst *time.Time, name, value string) error {
	t, rule := parseTime(value)
	if rule != "" {
		return r.mistake(r.in.fail("%s %s: %s", name, quote(value), rule))
	}
	*dst = t
	return nil
}

func (r *Reader) length(value string) (*int64, error) {
	n, ok := parseLength(value)
	if !ok {
		return nil, r.mistake(r.in.fail("length is a whole number of bytes, not %s", quote(value)))
	}
	return &n, nil
}

// parseLength reads a length: digits only, no more than an int64 can hold.
func parseLength(s string) (int64, bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil && n >= 0 && isDigit(s[0])
}
