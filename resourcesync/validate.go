package resourcesync

import (
	"fmt"
	"mime"
	"slices"
	"strings"
	"time"
)

// The most that an entry may hold. The standard sets no such bounds, except that maxURI
// is the bound of the sitemap schema.
const (
	maxURI   = 2048 // bytes of a URI
	maxText  = 1024 // bytes of any other string
	maxLinks = 100  // rs:ln elements of an entry, or of a header
	maxAttrs = 100  // foreign attributes of an element
	maxPri   = 999_999
)

// Validate checks whether c may be published, or be an entry of a Change List or a
// Change Notification. c must have an absolute loc and a change. Every other field may
// be absent. If it is there, the standard must allow its value (core section 7), XML
// must be able to carry it, and it must not be too long. An error is an *Error with
// ErrInvalid, and its Msg names the field.
//
// Validate changes one thing: it puts single spaces between the values of a Hash.
func (c *Change) Validate() error {
	rule := c.rule()
	if rule == "" {
		return nil
	}
	return &Error{Err: ErrInvalid, Loc: Shorten(c.Loc), Msg: rule}
}

// rule returns the rule that c breaks, or "". It allocates nothing for a value that
// breaks no rule, because it runs for every change that is published.
func (c *Change) rule() string {
	switch {
	case c.Loc == "":
		return "loc is missing"
	case c.Change == "":
		return "change is missing: it is created, updated or deleted"
	case !c.Change.known():
		return unknownChange(string(c.Change))
	}
	if rule := uriRule("loc", c.Loc); rule != "" && (c.Change != Deleted || badURI(c.Loc) != "") { // a set may have it since before hosts were checked
		return rule
	}
	if rule := timeRule("datetime", c.Datetime); rule != "" {
		return rule
	}
	if rule := timeRule("lastmod", c.Lastmod); rule != "" {
		return rule
	}
	switch c.Changefreq {
	case "", "always", "hourly", "daily", "weekly", "monthly", "yearly", "never":
	default:
		return "changefreq is always, hourly, daily, weekly, monthly, yearly or never, not " + quote(c.Changefreq)
	}
	c.Hash = oneSpace(c.Hash)
	if rule := bodyRule(c.Hash, c.Length, c.Type, c.Encoding, c.Path); rule != "" {
		return rule
	}
	if rule := attrsRule(c.Attrs); rule != "" {
		return rule
	}
	if len(c.Links) > maxLinks {
		return tooManyLinks
	}
	for i := range c.Links {
		if rule := c.Links[i].rule(); rule != "" {
			return fmt.Sprintf("ln %d: %s", i+1, rule)
		}
	}
	if !c.small() && c.Size() > maxChange {
		return tooLarge
	}
	return ""
}

// small reports that a change whose fields are valid is not larger than maxChange, by looking
// at few things: a link without attributes has three texts of at most maxURI bytes, and four of
// at most maxText, of which each byte may become six.
func (c *Change) small() bool {
	const fewLinks = 10
	return len(c.Links) == 0 || len(c.Links) <= fewLinks && len(c.Attrs) == 0 &&
		!slices.ContainsFunc(c.Links, func(l Link) bool { return len(l.Attrs) > 0 })
}

var tooLarge = "an entry has at most " + group(maxChange) + " bytes as it is written"

var tooManyLinks = fmt.Sprintf("an entry has at most %d links", maxLinks)

// RelPatch is the relation to a description of the change itself (core section 14.4).
const RelPatch = "http://www.openarchives.org/rs/terms/patch"

func (l *Link) rule() string {
	switch {
	case l.Rel == "":
		return "rel is missing"
	case l.Href == "":
		return "href is missing"
	case l.Pri < 0 || l.Pri > maxPri:
		return "pri is 1 to 999999"
	case l.Rel == RelPatch && l.Type == "":
		return "type is missing: it says how the patch is applied"
	}
	if rule := relRule(l.Rel); rule != "" {
		return rule
	}
	if rule := uriRule("href", l.Href); rule != "" {
		return rule
	}
	if rule := timeRule("modified", l.Modified); rule != "" {
		return rule
	}
	if l.Profile != "" {
		if rule := uriRule("profile", l.Profile); rule != "" {
			return rule
		}
	}
	l.Hash = oneSpace(l.Hash)
	if rule := bodyRule(l.Hash, l.Length, l.Type, l.Encoding, l.Path); rule != "" {
		return rule
	}
	return attrsRule(l.Attrs)
}

func (t ChangeType) known() bool {
	return t == Created || t == Updated || t == Deleted
}

func unknownChange(s string) string {
	return "change is created, updated or deleted, not " + quote(s)
}

func uriRule(name, s string) string {
	if len(s) > maxURI {
		return fmt.Sprintf("%s is longer than %d bytes", name, maxURI)
	}
	bad := badURI(s)
	if bad == "" && strings.Contains(s, "%") {
		bad = badHost(s)
	}
	if bad != "" {
		return name + ": " + bad
	}
	return ""
}

// relRule checks a relation type: a URI, or a name in the form of registered relation
// types (RFC 5988, section 5).
func relRule(s string) string {
	for i := range len(s) {
		b := s[i]
		if 'a' <= b && b <= 'z' || i > 0 && (isDigit(b) || b == '.' || b == '-') {
			continue
		}
		if len(s) > maxURI {
			return fmt.Sprintf("rel is longer than %d bytes", maxURI)
		}
		if badURI(s) != "" {
			return "rel is one registered relation, in small letters, or a URI, not " + quote(s)
		}
		return ""
	}
	if len(s) > maxText {
		return fmt.Sprintf("rel is longer than %d bytes", maxText)
	}
	return ""
}

func timeRule(name string, t time.Time) string {
	if !t.IsZero() && !inYears(t) {
		return name + ": the year is 0001 to 9999"
	}
	return ""
}

// bodyRule checks the fields of a representation that entries and links share.
func bodyRule(hash string, length *int64, mediaType, encoding, path string) string {
	if hash != "" {
		if rule := hashRule(hash); rule != "" {
			return rule
		}
	}
	if length != nil && *length < 0 {
		return "length is not negative"
	}
	if mediaType != "" {
		if rule := typeRule(mediaType); rule != "" {
			return rule
		}
	}
	if encoding != "" {
		if rule := lineRule("encoding", encoding); rule != "" {
			return rule
		}
	}
	if path != "" {
		if rule := lineRule("path", path); rule != "" {
			return rule
		}
		if path[0] != '/' || path[len(path)-1] == '/' {
			return `path begins with "/" and does not end with it`
		}
	}
	return ""
}

// hashRule checks "alg:hex" values with one space between them. It accepts unknown
// algorithms, because the standard does not list the allowed ones.
func hashRule(s string) string {
	if len(s) > maxText {
		return fmt.Sprintf("hash is longer than %d bytes", maxText)
	}
	for rest, more := s, true; more; {
		var one string
		one, rest, more = strings.Cut(rest, " ")
		alg, digest, ok := strings.Cut(one, ":")
		if !ok || alg == "" {
			return "a hash names its algorithm, as in md5:1584…, not " + quote(one)
		}
		if !isToken(alg) {
			return "hash: " + quote(alg) + " is not the name of an algorithm"
		}
		if digest == "" {
			return "hash: no digest follows " + quote(one)
		}
		for i := range len(digest) {
			if !isHex(digest[i]) {
				return "hash: a digest is written in hex digits, not " + quote(one)
			}
		}
		if want := hexDigits(alg); want > 0 && len(digest) != want {
			return fmt.Sprintf("hash: %s has %d hex digits, not %d", alg, want, len(digest))
		}
	}
	return ""
}

// Digest returns the hex digits of an algorithm, such as md5, in the text of Change.Hash; empty:
// there are none.
func Digest(hashes, algorithm string) string {
	for hash := range strings.FieldsSeq(hashes) {
		if name, digits, _ := strings.Cut(hash, ":"); name == algorithm {
			return digits
		}
	}
	return ""
}

// hexDigits returns the length of an algorithm's digest in hex digits; 0 for an unknown
// algorithm.
func hexDigits(alg string) int {
	switch {
	case strings.EqualFold(alg, "md5"):
		return 32
	case strings.EqualFold(alg, "sha-1"):
		return 40
	case strings.EqualFold(alg, "sha-256"):
		return 64
	case strings.EqualFold(alg, "sha-512"):
		return 128
	}
	return 0
}

// typeRule checks a media type (RFC 6838), with or without parameters. The schema of
// the standard allows neither parameters nor a plus sign. The text of the standard
// allows both, and so does typeRule.
func typeRule(s string) string {
	if top, sub, ok := strings.Cut(s, "/"); ok && len(s) <= maxText && isToken(top) && isToken(sub) {
		return "" // tokens break none of the rules below
	}
	if rule := lineRule("type", s); rule != "" {
		return rule
	}
	essence, _, hasParams := strings.Cut(s, ";")
	top, sub, ok := strings.Cut(strings.TrimRight(essence, " "), "/")
	if ok && hasParams && isToken(top) && isToken(sub) {
		if _, _, err := mime.ParseMediaType(s); err == nil {
			return ""
		}
	}
	return "type is a media type like text/html, not " + quote(s)
}

// isToken reports whether s is a token of HTTP (RFC 9110, section 5.6.2).
func isToken(s string) bool {
	for i := range len(s) {
		if classes[s[i]]&tokenChar == 0 {
			return false
		}
	}
	return s != ""
}

// lineRule checks a value that is one line of text.
func lineRule(name, s string) string {
	if len(s) > maxText {
		return fmt.Sprintf("%s is longer than %d bytes", name, maxText)
	}
	if bad := badText(s); bad != "" {
		return name + ": " + bad
	}
	if hasControl(s) {
		return name + " has no control characters"
	}
	if trim(s) != s {
		return name + " has no space at either end"
	}
	return ""
}

func attrsRule(attrs []Attr) string {
	if len(attrs) > maxAttrs {
		return fmt.Sprintf("an element has at most %d foreign attributes", maxAttrs)
	}
	for i := range attrs {
		a := &attrs[i]
		if a.isCapability() {
			if a.Value == "" {
				return "capability is missing: it says what the document is that has changed"
			}
		} else if rule := attrNameRule(a.Namespace, a.Name); rule != "" {
			return rule
		}
		if len(a.Value) > maxText {
			return fmt.Sprintf("attribute %s is longer than %d bytes", a.Name, maxText)
		}
		if bad := badText(a.Value); bad != "" {
			return "attribute " + a.Name + ": " + bad
		}
		for _, b := range attrs[:i] {
			if a.Name == b.Name && a.Namespace == b.Namespace {
				return "attribute " + a.Name + " is there twice"
			}
		}
	}
	return ""
}

func attrNameRule(namespace, name string) string {
	switch {
	case !isForeign(namespace) && namespace != xmlNS:
		return "attribute " + quote(name) + ": " + quote(namespace) + " is not a foreign namespace"
	case len(name) > maxText || !isNCName(name):
		return "attribute " + quote(name) + ": the name is letters, digits, \"-\", \"_\" and \".\", and begins with a letter"
	case len(namespace) > maxURI:
		return fmt.Sprintf("attribute %s: its namespace is longer than %d bytes", name, maxURI)
	}
	if bad := badText(namespace); bad != "" {
		return "attribute " + name + ": its namespace: " + bad
	}
	if strings.ContainsAny(namespace, "{} ") || hasControl(namespace) {
		return "attribute " + name + ": its namespace is not a URI"
	}
	return ""
}
