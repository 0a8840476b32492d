package feed

import "strings"

// A Link is one link of a Link header (RFC 8288).
type Link struct {
	URI string
	Rel string // one or more relation types, separated by space

	anchor bool // the link is about another resource than the request
}

// Is reports whether the link has a relation type. Letter case does not matter.
func (l Link) Is(rel string) bool {
	for r := range strings.FieldsSeq(l.Rel) {
		if strings.EqualFold(r, rel) {
			return true
		}
	}
	return false
}

// ParseLinks reads the values of Link header fields. It skips what is not a
// link (RFC 8288 appendix B.2). It also skips links with an anchor, as section
// 3.2 allows, because they say nothing about the request.
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
			if s = l.params(params); !l.anchor {
				links = append(links, l)
			}
		}
	}
	return links
}

// params reads the parameters after a link's URI. It returns the rest of the
// field, which begins with the comma. If there are several rel parameters, the
// first counts.
func (l *Link) params(s string) string {
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
		value, s = paramValue(strings.TrimLeft(s[1:], " \t"))
		switch {
		case strings.EqualFold(name, "rel") && !seen:
			l.Rel, seen = value, true
		case strings.EqualFold(name, "anchor"):
			l.anchor = true
		}
	}
}

// paramValue reads a token or a quoted string, and returns what follows it.
func paramValue(s string) (value, rest string) {
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
