package resourcesync

import (
	"fmt"
	"mime"
	"slices"
	"strings"
	"time"
)

// Limits of an entry. Only maxURI is a limit of the standard, from the sitemap schema.
const (
	maxURI   = 2048    // bytes of a URI
	maxText  = 1024    // bytes of any other string
	maxLinks = 100     // rs:ln elements of an entry, or of a header
	maxAttrs = 100     // foreign attributes of an element
	maxPri   = 999_999 // value of the pri of a link
)

// Validate returns nil if c may be published, or be an entry of a Change List or a Change
// Notification. c must have an absolute loc and a change. Every other field is optional.
// If it is present, the standard must allow its value (core section 7), XML must be able
// to represent it, and it must not be too long. Otherwise the error is an *Error that
// wraps ErrInvalid, and its Msg names the field.
//
// Validate modifies only the hashes of c and of its links: it separates their values by
// single spaces.
func (c *Change) Validate() error {
	msg := c.violation()
	if msg == "" {
		return nil
	}
	return &Error{Err: ErrInvalid, Loc: Shorten(c.Loc), Msg: msg}
}

// violation describes the first violation in c, or returns "" if c is valid. It allocates
// nothing for a valid value, because it runs for every change that is published.
func (c *Change) violation() string {
	switch {
	case c.Loc == "":
		return "loc is missing"
	case c.Change == "":
		return "change is missing; want created, updated or deleted"
	case !c.Change.isKnown():
		return unknownChange(string(c.Change))
	}
	if msg := uriViolation("loc", c.Loc); msg != "" && (c.Change != Deleted || badURI(c.Loc) != "") { // a resource published before hosts were checked must remain deletable
		return msg
	}
	if msg := timeViolation("datetime", c.Datetime); msg != "" {
		return msg
	}
	if msg := timeViolation("lastmod", c.Lastmod); msg != "" {
		return msg
	}
	switch c.Changefreq {
	case "", "always", "hourly", "daily", "weekly", "monthly", "yearly", "never":
	default:
		return "changefreq: got " + quote(c.Changefreq) + ", want always, hourly, daily, weekly, monthly, yearly or never"
	}
	c.Hash = normalizeSpace(c.Hash)
	if msg := bodyViolation(c.Hash, c.Length, c.Type, c.Encoding, c.Path); msg != "" {
		return msg
	}
	if msg := attrsViolation(c.Attrs); msg != "" {
		return msg
	}
	if len(c.Links) > maxLinks {
		return tooManyLinks
	}
	for i := range c.Links {
		if msg := c.Links[i].violation(); msg != "" {
			return fmt.Sprintf("ln %d: %s", i+1, msg)
		}
	}
	if !c.isSmall() && c.Size() > maxChange {
		return entryTooLarge
	}
	return ""
}

// isSmall reports whether a change whose fields are valid certainly has a Size of at most
// maxChange. It examines few things: a link without attributes has three strings of at
// most maxURI bytes and four of at most maxText, and each byte may become six.
func (c *Change) isSmall() bool {
	const fewLinks = 10
	return len(c.Links) == 0 || len(c.Links) <= fewLinks && len(c.Attrs) == 0 &&
		!slices.ContainsFunc(c.Links, func(l Link) bool { return len(l.Attrs) > 0 })
}

var entryTooLarge = "entry too large; want at most " + groupDigits(maxChange) + " bytes encoded"

var tooManyLinks = fmt.Sprintf("too many links; want at most %d", maxLinks)

// RelPatch is the link relation to a patch, which describes the change itself (core section
// 14.4).
const RelPatch = "http://www.openarchives.org/rs/terms/patch"

// violation describes the first violation in l, or returns "" if l is valid.
func (l *Link) violation() string {
	switch {
	case l.Rel == "":
		return "rel is missing"
	case l.Href == "":
		return "href is missing"
	case l.Pri < 0 || l.Pri > maxPri:
		return fmt.Sprintf("pri: got %d, want 1 to %d", l.Pri, maxPri)
	case l.Rel == RelPatch && l.Type == "":
		return "type is missing; want the media type of the patch"
	}
	if msg := relViolation(l.Rel); msg != "" {
		return msg
	}
	if msg := uriViolation("href", l.Href); msg != "" {
		return msg
	}
	if msg := timeViolation("modified", l.Modified); msg != "" {
		return msg
	}
	if l.Profile != "" {
		if msg := uriViolation("profile", l.Profile); msg != "" {
			return msg
		}
	}
	l.Hash = normalizeSpace(l.Hash)
	if msg := bodyViolation(l.Hash, l.Length, l.Type, l.Encoding, l.Path); msg != "" {
		return msg
	}
	return attrsViolation(l.Attrs)
}

// isKnown reports whether t is Created, Updated or Deleted.
func (t ChangeType) isKnown() bool {
	return t == Created || t == Updated || t == Deleted
}

// unknownChange returns the message for a change that is not a known ChangeType.
func unknownChange(s string) string {
	return "change: got " + quote(s) + ", want created, updated or deleted"
}

// uriViolation checks that s is an absolute URI of at most maxURI bytes with an ASCII host.
func uriViolation(name, s string) string {
	if len(s) > maxURI {
		return fmt.Sprintf("%s: got %d bytes, want at most %d", name, len(s), maxURI)
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

// relViolation checks a relation type, which is a URI or a name in the form of registered
// relation types (RFC 5988, section 5).
func relViolation(s string) string {
	for i := range len(s) {
		b := s[i]
		if 'a' <= b && b <= 'z' || i > 0 && (isDigit(b) || b == '.' || b == '-') {
			continue
		}
		if len(s) > maxURI {
			return fmt.Sprintf("rel: got %d bytes, want at most %d", len(s), maxURI)
		}
		if badURI(s) != "" {
			return "rel: got " + quote(s) + ", want a registered relation in lower case or a URI"
		}
		return ""
	}
	if len(s) > maxText {
		return fmt.Sprintf("rel: got %d bytes, want at most %d", len(s), maxText)
	}
	return ""
}

// timeViolation checks that t has a year of four digits, unless it is zero.
func timeViolation(name string, t time.Time) string {
	if !t.IsZero() && !hasValidYear(t) {
		return fmt.Sprintf("%s: got year %d, want 0001 to 9999", name, t.UTC().Year())
	}
	return ""
}

// bodyViolation checks the fields of a representation, which entries and links share.
func bodyViolation(hash string, length *int64, mediaType, encoding, path string) string {
	if hash != "" {
		if msg := hashViolation(hash); msg != "" {
			return msg
		}
	}
	if length != nil && *length < 0 {
		return fmt.Sprintf("length: got %d, want 0 or more", *length)
	}
	if mediaType != "" {
		if msg := typeViolation(mediaType); msg != "" {
			return msg
		}
	}
	if encoding != "" {
		if msg := lineViolation("encoding", encoding); msg != "" {
			return msg
		}
	}
	if path != "" {
		if msg := lineViolation("path", path); msg != "" {
			return msg
		}
		if path[0] != '/' || path[len(path)-1] == '/' {
			return "path: got " + quote(path) + `, want a path that starts with "/" and does not end with it`
		}
	}
	return ""
}

// hashViolation checks "algorithm:hex" values that are separated by one space each. It
// accepts unknown algorithms, because the standard does not list the allowed ones.
func hashViolation(s string) string {
	if len(s) > maxText {
		return fmt.Sprintf("hash: got %d bytes, want at most %d", len(s), maxText)
	}
	for rest, more := s, true; more; {
		var one string
		one, rest, more = strings.Cut(rest, " ")
		alg, digest, ok := strings.Cut(one, ":")
		if !ok || alg == "" {
			return "hash: got " + quote(one) + ", want an algorithm and a digest such as md5:1584…"
		}
		if !isToken(alg) {
			return "hash: got algorithm " + quote(alg) + ", want a name such as md5"
		}
		if digest == "" {
			return "hash: got " + quote(one) + " without a digest, want hex digits after the colon"
		}
		for i := range len(digest) {
			if !isHex(digest[i]) {
				return "hash: got " + quote(one) + ", want a digest in hex digits"
			}
		}
		if want := hexDigits(alg); want > 0 && len(digest) != want {
			return fmt.Sprintf("hash: got %d hex digits for %s, want %d", len(digest), alg, want)
		}
	}
	return ""
}

// Digest returns the hex digits of the given algorithm, such as md5, in hashes, which has
// the form of Change.Hash. It returns "" if hashes has no digest of that algorithm. The
// name of the algorithm is case-sensitive.
func Digest(hashes, algorithm string) string {
	for hash := range strings.FieldsSeq(hashes) {
		if name, digits, _ := strings.Cut(hash, ":"); name == algorithm {
			return digits
		}
	}
	return ""
}

// hexDigits returns the number of hex digits in a digest of the given algorithm, or 0 if the
// algorithm is unknown.
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

// typeViolation checks a media type (RFC 6838), with or without parameters. The schema of
// the standard allows neither parameters nor a plus sign, but its text allows both, and so
// does typeViolation.
func typeViolation(s string) string {
	if top, sub, ok := strings.Cut(s, "/"); ok && len(s) <= maxText && isToken(top) && isToken(sub) {
		return "" // tokens pass all checks below
	}
	if msg := lineViolation("type", s); msg != "" {
		return msg
	}
	essence, _, hasParams := strings.Cut(s, ";")
	top, sub, ok := strings.Cut(strings.TrimRight(essence, " "), "/")
	if ok && hasParams && isToken(top) && isToken(sub) {
		if _, _, err := mime.ParseMediaType(s); err == nil {
			return ""
		}
	}
	return "type: got " + quote(s) + ", want a media type such as text/html"
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

// lineViolation checks that a value is one line of text, without space at its ends.
func lineViolation(name, s string) string {
	if len(s) > maxText {
		return fmt.Sprintf("%s: got %d bytes, want at most %d", name, len(s), maxText)
	}
	if bad := badText(s); bad != "" {
		return name + ": " + bad
	}
	if hasControl(s) {
		return name + ": got " + quote(s) + ", want no control characters"
	}
	if trim(s) != s {
		return name + ": got " + quote(s) + ", want no leading or trailing space"
	}
	return ""
}

// attrsViolation checks the names, the values and the number of the foreign attributes of an
// element, and rejects duplicates.
func attrsViolation(attrs []Attr) string {
	if len(attrs) > maxAttrs {
		return fmt.Sprintf("too many foreign attributes; want at most %d per element", maxAttrs)
	}
	for i := range attrs {
		a := &attrs[i]
		if a.isCapability() {
			if a.Value == "" {
				return "capability is missing; want the capability of the changed document, such as changelist"
			}
		} else if msg := attrNameViolation(a.Namespace, a.Name); msg != "" {
			return msg
		}
		if len(a.Value) > maxText {
			return fmt.Sprintf("attribute %s: got %d bytes, want at most %d", a.Name, len(a.Value), maxText)
		}
		if bad := badText(a.Value); bad != "" {
			return "attribute " + a.Name + ": " + bad
		}
		for _, b := range attrs[:i] {
			if a.Name == b.Name && a.Namespace == b.Namespace {
				return "duplicate attribute " + a.Name
			}
		}
	}
	return ""
}

// attrNameViolation checks the namespace and the name of a foreign attribute.
func attrNameViolation(namespace, name string) string {
	switch {
	case !isForeign(namespace) && namespace != xmlNS:
		return "attribute " + quote(name) + ": got namespace " + quote(namespace) + ", want a foreign one"
	case len(name) > maxText || !isNCName(name):
		return "attribute name: got " + quote(name) + `, want letters, digits, "-", "_" and ".", starting with a letter or "_"`
	case len(namespace) > maxURI:
		return fmt.Sprintf("attribute %s: namespace: got %d bytes, want at most %d", name, len(namespace), maxURI)
	}
	if bad := badText(namespace); bad != "" {
		return "attribute " + name + ": namespace: " + bad
	}
	if strings.ContainsAny(namespace, "{} ") || hasControl(namespace) {
		return "attribute " + name + ": got namespace " + quote(namespace) + ", want a URI"
	}
	return ""
}
