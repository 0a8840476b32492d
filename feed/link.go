package feed

import "strings"

// A Link is one link of a Link header (RFC 8288).
type Link struct {
	URI string
	Rel string // one or more relation types, separated by spaces

	anchor bool // whether the link is about another resource than the request
}

// HasRel reports whether the link has the given relation type. It ignores letter case.
func (l Link) HasRel(rel string) bool {
	for r := range strings.FieldsSeq(l.Rel) {
		if strings.EqualFold(r, rel) {
			return true
		}
	}
	return false
}

// ParseLinks parses the values of Link header fields. It skips invalid links (RFC 8288 appendix
// B.2), and links with an anchor, as section 3.2 permits: they are about another resource than the
// request.
func ParseLinks(values []string) []Link {
	var links []Link
	for _, s := range values {
		for {
			_, rest, ok := strings.Cut(s, "<")
			uri, params, closed := strings.Cut(rest, ">")
			if !ok || !closed {
				break
			}
			l := Link{URI: strings.TrimSpace(uri)}
			if s = l.parseParams(params); !l.anchor {
				links = append(links, l)
			}
		}
	}
	return links
}

// parseParams parses the parameters after a link's URI. It returns the rest of the field, starting
// with the comma. The first rel parameter applies, and others are ignored.
func (l *Link) parseParams(s string) string {
	for seen := false; ; {
		s = strings.TrimLeft(s, " \t;")
		end := strings.IndexAny(s, "=;,")
		if end < 0 {
			return ""
		}
		if s[0] == ',' {
			return s
		}
		name := strings.TrimSpace(s[:end])
		if s = s[end:]; s[0] != '=' {
			continue
		}
		var value string
		value, s = parseParamValue(strings.TrimLeft(s[1:], " \t"))
		switch {
		case strings.EqualFold(name, "rel") && !seen:
			l.Rel, seen = value, true
		case strings.EqualFold(name, "anchor"):
			l.anchor = true
		}
	}
}

// parseParamValue parses a token or a quoted string. It also returns the rest of s.
func parseParamValue(s string) (value, rest string) {
	if !strings.HasPrefix(s, `"`) {
		end := strings.IndexAny(s, ";,")
		if end < 0 {
			end = len(s)
		}
		return strings.TrimSpace(s[:end]), s[end:]
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == '"':
			return b.String(), s[i+1:]
		case s[i] == '\\' && i+1 < len(s):
			i++
		}
		b.WriteByte(s[i])
	}
	return b.String(), ""
}
