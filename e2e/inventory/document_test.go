package inventory

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// This file reads documents as the standard describes them (ResourceSync 1.1, sections 7
// to 12 and appendix A), and nothing else. It shares no code with the hub. What the
// standard recommends counts as required.

const (
	sitemapNS = "http://www.sitemaps.org/schemas/sitemap/0.9"
	rsNS      = "http://www.openarchives.org/rs/terms/"
	hubNS     = "https://github.com/rshub/rshub/terms/"
)

// The limits of a document (section 7).
const (
	maxItems = 50_000
	maxBytes = 50_000_000
)

// attributes are those of one rs:md or rs:ln: own ones by their name, foreign ones by
// namespace and name with a space between.
type attributes map[string]string

type link struct{ attributes }

// A strictDocument is a document that obeys the standard.
type strictDocument struct {
	url   string
	text  []byte
	index bool
	md    attributes
	links []link
	items []item
}

// An item is a url or a sitemap of a document.
type item struct {
	loc, lastmod, changefreq string
	md                       attributes
	links                    []link
}

// readStrictly reads a document. The error names the rule that is broken.
func readStrictly(at string, text []byte) (*strictDocument, error) {
	d := &strictDocument{url: at, text: text}
	if len(text) > maxBytes {
		return nil, fmt.Errorf("%s: section 7: it has %d bytes", at, len(text))
	}
	err := d.parse()
	if err == nil {
		err = d.check()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", at, err)
	}
	return d, nil
}

// parse reads the elements in their order (tables 2 and 3).
func (d *strictDocument) parse() error {
	dec := xml.NewDecoder(bytes.NewReader(d.text))
	var open []xml.Name
	var text strings.Builder
	var it *item
	for {
		tok, err := dec.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		switch tok := tok.(type) {
		case xml.Directive:
			return fmt.Errorf("a document type: %s", tok)
		case xml.CharData:
			text.Write(tok)
		case xml.StartElement:
			if n := len(open); n > 0 && n != 2 && strings.TrimSpace(text.String()) != "" {
				return fmt.Errorf("text %q in %s", text.String(), open[n-1].Local)
			}
			text.Reset()
			if err := d.start(open, tok, &it); err != nil {
				return err
			}
			open = append(open, tok.Name)
		case xml.EndElement:
			open = open[:len(open)-1]
			s := text.String()
			text.Reset()
			if len(open) == 2 && tok.Name.Space == sitemapNS {
				switch tok.Name.Local {
				case "loc":
					it.loc = s
				case "lastmod":
					it.lastmod = s
				case "changefreq":
					it.changefreq = s
				}
				continue
			}
			if len(open) == 1 && it != nil && tok.Name.Space == sitemapNS {
				d.items = append(d.items, *it)
				it = nil
			}
		}
	}
	return nil
}

// start reads a start element.
func (d *strictDocument) start(open []xml.Name, e xml.StartElement, it **item) error {
	misplaced := fmt.Errorf("table 2: %s %s stands where it may not", e.Name.Space, e.Name.Local)
	switch len(open) {
	case 0:
		d.index = e.Name.Local == "sitemapindex"
		if e.Name.Space != sitemapNS || !d.index && e.Name.Local != "urlset" {
			return misplaced
		}
		return noAttributes(e)
	case 1:
		switch e.Name {
		case xml.Name{Space: rsNS, Local: "md"}:
			if d.md != nil {
				return fmt.Errorf("section 7: a second rs:md")
			}
			d.md = attributesOf(e)
		case xml.Name{Space: rsNS, Local: "ln"}:
			d.links = append(d.links, link{attributesOf(e)})
		case xml.Name{Space: sitemapNS, Local: map[bool]string{false: "url", true: "sitemap"}[d.index]}:
			*it = new(item)
			return noAttributes(e)
		default:
			return misplaced
		}
	case 2:
		switch e.Name {
		case xml.Name{Space: rsNS, Local: "md"}:
			if (*it).md != nil {
				return fmt.Errorf("section 7: a second rs:md of %s", (*it).loc)
			}
			(*it).md = attributesOf(e)
		case xml.Name{Space: rsNS, Local: "ln"}:
			(*it).links = append((*it).links, link{attributesOf(e)})
		case xml.Name{Space: sitemapNS, Local: "loc"}:
			if (*it).loc != "" {
				return fmt.Errorf("section 7: a second loc")
			}
			return noAttributes(e)
		case xml.Name{Space: sitemapNS, Local: "lastmod"}, xml.Name{Space: sitemapNS, Local: "changefreq"}:
			return noAttributes(e)
		default:
			return misplaced
		}
	default:
		return misplaced
	}
	return nil
}

func noAttributes(e xml.StartElement) error {
	for _, a := range e.Attr {
		if a.Name.Local != "xmlns" && a.Name.Space != "xmlns" {
			return fmt.Errorf("sections 8 to 12: %s has an attribute %s", e.Name.Local, a.Name.Local)
		}
	}
	return nil
}

func attributesOf(e xml.StartElement) attributes {
	all := attributes{}
	for _, a := range e.Attr {
		switch a.Name.Space {
		case "xmlns":
		case "":
			if a.Name.Local != "xmlns" {
				all[a.Name.Local] = a.Value
			}
		default:
			all[a.Name.Space+" "+a.Name.Local] = a.Value
		}
	}
	return all
}

// only checks that own attributes are among some.
func (a attributes) only(what string, names ...string) error {
	for name := range a {
		if strings.HasPrefix(name, rsNS+" ") {
			return fmt.Errorf("section 7: the attribute %s of %s has a prefix", name, what)
		}
		if !strings.Contains(name, " ") && !slices.Contains(names, name) {
			return fmt.Errorf("table 3: %s has the attribute %s", what, name)
		}
	}
	return nil
}

// at reads a W3C Datetime in UTC.
func (a attributes) at(name string) (time.Time, error) { return w3c(name, a[name]) }

func w3c(name, s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if !strings.HasSuffix(s, "Z") {
		return time.Time{}, fmt.Errorf("section 7: %s is %q", name, s)
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return t, fmt.Errorf("section 7: %s: %w", name, err)
	}
	return t, nil
}

// link returns the link with a relation, of which there has to be one.
func (d *strictDocument) link(rel string) (href string, err error) {
	for _, l := range d.links {
		if l.attributes["rel"] != rel {
			continue
		}
		if href != "" {
			return "", fmt.Errorf("two links with rel=%s", rel)
		}
		href = l.attributes["href"]
	}
	if href == "" {
		return "", fmt.Errorf("there is no link with rel=%s", rel)
	}
	return href, nil
}

// check checks what every document has to obey, and what its capability asks for.
func (d *strictDocument) check() error {
	if d.md == nil {
		return fmt.Errorf("section 7: there is no rs:md")
	}
	if len(d.items) > maxItems {
		return fmt.Errorf("section 7: it has %d items", len(d.items))
	}
	if err := checkLinks(d.links); err != nil {
		return err
	}
	for i := range d.items {
		it := &d.items[i]
		if err := it.check(); err != nil {
			return fmt.Errorf("item %d, %s: %w", i+1, it.loc, err)
		}
	}
	capability := d.md["capability"]
	if capability != "description" {
		if _, err := d.link("up"); err != nil {
			return err
		}
	}
	switch capability {
	case "description":
		return d.checkPointers("capability")
	case "capabilitylist":
		return d.checkPointers("capability")
	case "resourcelist":
		return d.checkSnapshot()
	case "changelist":
		return d.checkChanges()
	}
	return fmt.Errorf("section 7: the capability %q", capability)
}

func checkLinks(links []link) error {
	for _, l := range links {
		if err := l.only("rs:ln", "encoding", "hash", "href", "length", "modified", "path", "pri", "rel", "type"); err != nil {
			return err
		}
		if u, err := url.Parse(l.attributes["href"]); err != nil || !u.IsAbs() || l.attributes["rel"] == "" {
			return fmt.Errorf("section 7: a link to %q with rel=%q", l.attributes["href"], l.attributes["rel"])
		}
	}
	return nil
}

var hashForm = regexp.MustCompile(`^[a-z0-9-]+:[0-9a-fA-F]+(\s+[a-z0-9-]+:[0-9a-fA-F]+)*$`)

func (it *item) check() error {
	u, err := url.Parse(it.loc)
	if err != nil || !u.IsAbs() {
		return fmt.Errorf("section 7: the loc is %q", it.loc)
	}
	if _, err := w3c("lastmod", it.lastmod); err != nil {
		return err
	}
	if h, ok := it.md["hash"]; ok && !hashForm.MatchString(h) {
		return fmt.Errorf("section 7: the hash %q", h)
	}
	if l, ok := it.md["length"]; ok {
		if n, err := strconv.ParseInt(l, 10, 64); err != nil || n < 0 {
			return fmt.Errorf("section 7: the length %q", l)
		}
	}
	return checkLinks(it.links)
}

// checkPointers checks a Source Description or a Capability List (sections 8 and 9).
func (d *strictDocument) checkPointers(names ...string) error {
	if d.index {
		return fmt.Errorf("section 9: it is an index")
	}
	if err := d.md.only("rs:md", "capability"); err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, it := range d.items {
		if err := it.md.only("rs:md of an item", names...); err != nil {
			return err
		}
		c := it.md["capability"]
		switch {
		case c == "" || it.lastmod != "":
			return fmt.Errorf("section 9: %s has the capability %q and lastmod %q", it.loc, c, it.lastmod)
		case d.md["capability"] == "description" && c != "capabilitylist":
			return fmt.Errorf("section 8: %s is a %s", it.loc, c)
		case d.md["capability"] == "capabilitylist" && seen[c]:
			return fmt.Errorf("section 9: two entries with the capability %s", c)
		}
		seen[c] = true
	}
	return nil
}

// checkSnapshot checks a Resource List or its index (section 10, appendix A).
func (d *strictDocument) checkSnapshot() error {
	if err := d.md.only("rs:md", "capability", "at", "completed"); err != nil {
		return err
	}
	at, err := d.md.at("at")
	if err != nil || at.IsZero() {
		return fmt.Errorf("section 10: at is %q", d.md["at"])
	}
	completed, err := d.md.at("completed")
	if err != nil || !completed.IsZero() && completed.Before(at) {
		return fmt.Errorf("section 10: at is %v, completed %q", at, d.md["completed"])
	}
	seen := map[string]bool{}
	for _, it := range d.items {
		names := []string{"hash", "length", "type", "encoding"}
		if d.index {
			names = []string{"at", "completed"}
		}
		if err := it.md.only("rs:md of "+it.loc, names...); err != nil {
			return err
		}
		if seen[it.loc] {
			return fmt.Errorf("section 10: %s is there twice", it.loc)
		}
		seen[it.loc] = true
	}
	return nil
}

// checkChanges checks a Change List or its index (section 12, appendix A).
func (d *strictDocument) checkChanges() error {
	if err := d.md.only("rs:md", "capability", "from", "until"); err != nil {
		return err
	}
	from, err := d.md.at("from")
	if err != nil || from.IsZero() {
		return fmt.Errorf("section 12: from is %q", d.md["from"])
	}
	until, err := d.md.at("until")
	if err != nil || !until.IsZero() && until.Before(from) {
		return fmt.Errorf("section 12: from %v until %q", from, d.md["until"])
	}
	last := from
	for i, it := range d.items {
		if d.index {
			if err := it.md.only("rs:md of "+it.loc, "from", "until"); err != nil {
				return err
			}
			f, ferr := it.md.at("from")
			u, uerr := it.md.at("until")
			if ferr != nil || uerr != nil || f.Before(last) || u.IsZero() != (i == len(d.items)-1 && until.IsZero()) {
				return fmt.Errorf("section 12.2: %s is from %q until %q behind %v", it.loc, it.md["from"], it.md["until"], last)
			}
			last = f
			continue
		}
		if err := it.md.only("rs:md of "+it.loc, "change", "datetime", "hash", "length", "type", "encoding", "path"); err != nil {
			return err
		}
		at, err := it.md.at("datetime")
		switch {
		case err != nil || at.Before(last) || !until.IsZero() && at.After(until):
			return fmt.Errorf("section 12.1: %s changed at %q, behind %v and until %v", it.loc, it.md["datetime"], last, until)
		case !slices.Contains([]string{"created", "updated", "deleted"}, it.md["change"]):
			return fmt.Errorf("section 12.1: %s is %q", it.loc, it.md["change"])
		}
		last = at
	}
	return nil
}
