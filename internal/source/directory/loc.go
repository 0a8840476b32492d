package directory

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"strings"
)

// Loc returns the URL of a path. It percent-encodes every byte that RFC 3986 does not allow in a
// segment of a path (pchar, section 3.3), so different paths have different URLs.
func (t *Tree) Loc(path string) string {
	if path == "." {
		return t.base
	}
	return t.base + escape(path)
}

// escape percent-encodes a path, except slashes.
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

// plain reports whether a byte is not encoded in a path.
func plain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~!$&'()*+,;=:@/", c) >= 0
}

// Compare compares two locs of a Tree by their paths, byte by byte.
func Compare(a, b string) int {
	for a != "" && b != "" {
		x, sizeX := unescape(a)
		y, sizeY := unescape(b)
		if x != y {
			return cmp.Compare(x, y)
		}
		a, b = a[sizeX:], b[sizeY:]
	}
	return cmp.Compare(len(a), len(b))
}

// path returns the path of a loc. It is the inverse of Loc.
func (t *Tree) path(loc string) (string, error) {
	rest, ok := strings.CutPrefix(loc, t.base)
	if !ok {
		return "", fmt.Errorf("%s is not below %s", loc, t.base)
	}
	if !strings.Contains(rest, "%") {
		return rest, nil
	}
	path := make([]byte, 0, len(rest))
	for rest != "" {
		c, size := unescape(rest)
		path, rest = append(path, c), rest[size:]
	}
	return string(path), nil
}

// unescape returns the first byte of an escaped path, and its length in the escaped form.
func unescape(s string) (c byte, size int) {
	if s[0] == '%' && len(s) >= 3 {
		var b [1]byte
		if _, err := hex.Decode(b[:], []byte(s[1:3])); err == nil {
			return b[0], 3
		}
	}
	return s[0], 1
}
