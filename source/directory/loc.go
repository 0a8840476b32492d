package directory

import "strings"

// Loc returns the URL of a path. It percent-encodes every byte that RFC 3986 does not
// allow in a segment of a path (pchar, section 3.3), so different paths have different
// URLs.
func (t *Tree) Loc(path string) string {
	if path == "." {
		return t.base
	}
	return t.base + escape(path)
}

// escape percent-encodes a path. Slashes stay.
func escape(path string) string {
	n := 0
	for i := range len(path) {
		if !plain(path[i]) {
			n++
		}
	}
	if n == 0 {
		return path
	}
	const hex = "0123456789ABCDEF"
	b := make([]byte, 0, len(path)+2*n)
	for i := range len(path) {
		if c := path[i]; plain(c) {
			b = append(b, c)
		} else {
			b = append(b, '%', hex[c>>4], hex[c&15])
		}
	}
	return string(b)
}

// plain reports whether a byte stands for itself in a path.
func plain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~!$&'()*+,;=:@/", c) >= 0
}
