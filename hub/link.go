package hub

import "strings"

// A link is one link of a Link header (RFC 8288).
type link struct {
	uri    string
	rel    string // one or more relation types, separated by space
	anchor bool   // it is a link of something else
}

// parseLinks reads the values of Link header fields. What is no link is passed
// over, as the RFC's appendix B.2 asks, and so are links with an anchor, as its
// section 3.2 allows: they do not say anything of the request.
func parseLinks(values []string) []link {
	var links []link
	for _, s := range values {
		for {
			_, rest, ok := strings.Cut(s, "<")
			uri, params, closed := strings.Cut(rest, ">")
			if !ok || !closed {
				break
			}
			l := link{uri: strings.TrimSpace(uri)}
			if s = l.params(params); !l.anchor {
				links = append(links, l)
			}
		}
	}
	return links
}

// params reads the parameters behind a link's URI and returns what follows,
// from the comma on. The first rel counts.
func (l *link) params(s string) string {
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
			l.rel, seen = value, true
		case strings.EqualFold(name, "anchor"):
			l.anchor = true
		}
	}
}

// paramValue reads a token or a quoted string.
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
