// Package filename maps each resource of a mirror to a file name: a relative path that is
// derived from its URL, is safe on every system, and shows the URL.
//
// The first directory is the host, and the rest of the path is the path of the URL, byte by
// byte, escapes included. Unsafe or ambiguous parts are marked with %~, which no URL contains:
//
//	https://example.org/a/b.pdf       example.org/a/b.pdf
//	http://example.org:8080/a         http=example.org+8080/a
//	https://example.org/a/            example.org/a/%~index
//	https://example.org               example.org/%~root
//	https://example.org/a?v=1/2       example.org/a%~3Fv=1%~2F2
//	https://example.org/a//b:c        example.org/a/%~empty/b%~3Ac
//	https://example.org/../con.txt    example.org/.%~2E/%~=con.txt
//	https://example.org/RSMIRR~1      example.org/%~=RSMIRR~1
//
// Two resources never get the same path: see Choose. A segment of more than 200 bytes is
// truncated and ends in a hash of the whole segment.
package filename

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"

	"github.com/rshub/rshub/resourcesync"
)

// State is the directory at the top of a mirror for the mirror's own data. No resource has a
// path in it.
const State = ".rsmirror"

// The marks. Any other "%~" is followed by a byte as two upper-case hexadecimal digits.
const (
	markIndex    = "%~index" // the URL ends with a slash
	markRoot     = "%~root"  // the URL has no path
	markEmpty    = "%~empty" // an empty segment between two slashes
	markReserved = "%~="     // prefix of a name that Windows reserves for a device or may use as a short name
	markCase     = "%~case"  // suffix: the upper-case letters are escaped
	markFile     = "%~file"  // suffix of a file: a directory has the name without it
	markDir      = "%~dir"   // suffix of a directory: a file has the name without it
	markOther    = "%~other" // directory of resources that do not start with Strip
	markLong     = "%~long"  // directory of resources whose path is too long
	markHash     = "%~~"     // before the hash of a truncated segment
)

const (
	maxSegment = 200   // maximum length of a segment in bytes, without the marks at its end
	cutSegment = 150   // bytes of a longer segment that remain
	maxPath    = 1_500 // maximum length of a path in bytes
)

// Names configures how paths are derived. It must not change during the life of a mirror.
type Names struct {
	Strip string // prefix to strip from URLs, with a trailing slash; default: the host is the first directory
}

// UsedPaths reports which paths are in use. Both methods ignore letter case, because some file
// systems do.
type UsedPaths interface {
	File(path string) bool // whether another resource has the path
	Dir(path string) bool  // whether resources exist below the path
}

// Choose returns the path of a resource: the plain one if it is free. Otherwise
//   - a file with the name of a directory gets the suffix %~file,
//   - a directory with the name of a file gets the suffix %~dir,
//   - a path that differs from another only in letter case gets the suffix %~case, and its
//     upper-case letters are escaped.
//
// So the path of a resource can depend on earlier resources. Loc parses all these paths. A
// path uses slashes, has no segment that is empty, "." or "..", and does not start with
// State. Choose returns an error for a URL that cannot have a path: only http and https can.
func (n Names) Choose(loc string, t UsedPaths) (string, error) {
	for _, marked := range []bool{false, true} {
		segments, err := n.segments(loc, marked)
		if err != nil {
			return "", err
		}
		if path, ok := freePath(segments, t); ok {
			return path, nil
		}
	}
	return "", fmt.Errorf("path of %s: every candidate is in use", resourcesync.Shorten(loc))
}

// freePath returns a path of the segments that is not in use, if one exists.
func freePath(segments []string, t UsedPaths) (path string, ok bool) {
	for i, s := range segments {
		if i > 0 {
			path += "/"
		}
		path += s
		if i < len(segments)-1 {
			if t.File(path) {
				path += markDir
			}
			if t.File(path) {
				return "", false
			}
			continue
		}
		if t.File(path) {
			return "", false
		}
		if t.Dir(path) {
			path += markFile
		}
		if t.File(path) || t.Dir(path) {
			return "", false
		}
	}
	return path, true
}

// Path returns the plain path of a resource, whether or not it is free.
func (n Names) Path(loc string) (string, error) {
	segments, err := n.segments(loc, false)
	return strings.Join(segments, "/"), err
}

// segments returns the segments of a path. If marked is true, letter case is escaped.
func (n Names) segments(loc string, marked bool) ([]string, error) {
	if err := resourcesync.CheckURI("loc", loc); err != nil {
		return nil, err
	}
	scheme, rest, _ := strings.Cut(loc, ":")
	if s := strings.ToLower(scheme); s != "http" && s != "https" {
		return nil, resourcesync.Invalidf("fetch %s: want an http or https URL", resourcesync.Shorten(loc))
	}
	var first []string
	if n.Strip != "" && strings.HasPrefix(loc, n.Strip) {
		rest = "/" + loc[len(n.Strip):]
	} else {
		rest = strings.TrimPrefix(rest, "//")
		end := strings.IndexAny(rest+"/", "/?#")
		first = []string{host(scheme, rest[:end], marked)}
		if n.Strip != "" {
			first = append([]string{markOther}, first...)
		}
		rest = rest[end:]
	}
	segments := append(first, pathSegments(rest, marked)...)
	if strings.EqualFold(segments[0], State) {
		segments[0] = "%~2E" + segments[0][1:]
	}
	last := &segments[len(segments)-1]
	if marked {
		*last += markCase
	}
	length := len(segments)
	for _, s := range segments {
		length += len(s)
	}
	if length > maxPath {
		tail := markHash + hash(loc) + extension(*last)
		segments = append(first, markLong, tail)
	}
	return segments, nil
}

// host returns the first directory of a URL.
func host(scheme, authority string, marked bool) string {
	var b strings.Builder
	if scheme != "https" {
		b.WriteString(escape(scheme, marked) + "=")
	}
	for _, c := range []byte(authority) {
		switch {
		case c == ':':
			b.WriteByte('+')
		case c == '+' || c == '=':
			fmt.Fprintf(&b, "%%~%02X", c)
		default:
			appendByte(&b, c, marked)
		}
	}
	return finishSegment(authority, b.String())
}

// pathSegments returns the segments of the part of a URL after the authority.
func pathSegments(rest string, marked bool) []string {
	path, tail := rest, ""
	if i := strings.IndexAny(rest, "?#"); i >= 0 {
		path, tail = rest[:i], rest[i:]
	}
	if path == "" {
		return []string{finishSegment(rest, markRoot+escape(tail, marked))}
	}
	parts := strings.Split(path[1:], "/")
	segments := make([]string, len(parts))
	for i, part := range parts {
		last := i == len(parts)-1
		if last {
			part += tail
		}
		switch {
		case part != "":
			segments[i] = finishSegment(part, escape(part, marked))
		case last:
			segments[i] = markIndex
		default:
			segments[i] = markEmpty
		}
	}
	return segments
}

// Segment returns a segment for a name that is not from a URL.
func Segment(name string) string { return finishSegment(name, escape(name, false)) }

// Name returns the name of a segment that Segment returned. ok is false for other segments.
func Name(segment string) (name string, ok bool) {
	name, ok = unescape(strings.TrimPrefix(segment, markReserved))
	return name, ok && Segment(name) == segment
}

// finishSegment marks and truncates a segment whose bytes are already escaped. text is the
// original segment.
func finishSegment(text, segment string) string {
	if stem, _, _ := strings.Cut(segment, "."); reserved(stem) || shortName.MatchString(segment) {
		segment = markReserved + segment
	}
	if s, dot := strings.CutSuffix(segment, "."); dot {
		segment = s + "%~2E"
	}
	if len(segment) <= maxSegment {
		return segment
	}
	kept := segment[:cutSegment]
	if i := strings.LastIndexByte(kept, '%'); i > cutSegment-4 {
		kept = kept[:i] // do not split an escape
	}
	return kept + markHash + hash(text) + extension(segment)
}

// shortName matches names of the form of the short names that Windows assigns, such as RSMIRR~1
// for .rsmirror. A number that is an escape does not count.
var shortName = regexp.MustCompile(`^([^.]{0,5}[^.%])?~[0-9]+(\.[^.]{0,3})?$`)

// reserved reports whether Windows reserves a name for a device.
func reserved(stem string) bool {
	switch s := strings.ToUpper(stem); s {
	case "CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$":
		return true
	default:
		return len(s) == 4 && (s[:3] == "COM" || s[:3] == "LPT") && s[3] >= '0' && s[3] <= '9'
	}
}

// extension returns the extension of a segment if it is short and plain.
func extension(segment string) string {
	i := strings.LastIndexByte(segment, '.')
	if i < 0 || len(segment)-i > 11 || len(segment)-i == 1 {
		return ""
	}
	for _, c := range []byte(segment[i+1:]) {
		if !letter(c) && (c < '0' || c > '9') {
			return ""
		}
	}
	return segment[i:]
}

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

func escape(text string, marked bool) string {
	var b strings.Builder
	for _, c := range []byte(text) {
		appendByte(&b, c, marked)
	}
	return b.String()
}

// appendByte writes a byte, or its escape if it cannot occur in a file name.
func appendByte(b *strings.Builder, c byte, marked bool) {
	if c <= ' ' || c >= 0x7F || strings.IndexByte(`<>:"/\|?*`, c) >= 0 || marked && c >= 'A' && c <= 'Z' {
		fmt.Fprintf(b, "%%~%02X", c)
		return
	}
	b.WriteByte(c)
}

func letter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }

// Loc returns the URL of the resource that has a path. ok is false if the path is not one of a
// mirror, or if it was truncated and so does not have the whole URL.
func (n Names) Loc(path string) (loc string, ok bool) {
	segments := strings.Split(path, "/")
	if strings.Contains(path, markHash) {
		return "", false
	}
	last := &segments[len(segments)-1]
	*last = strings.TrimSuffix(strings.TrimSuffix(*last, markFile), markCase)
	for i := range segments[:len(segments)-1] {
		segments[i] = strings.TrimSuffix(segments[i], markDir)
	}
	stripped := n.Strip != ""
	if stripped && segments[0] == markOther {
		stripped, segments = false, segments[1:]
	}
	var b strings.Builder
	if stripped {
		b.WriteString(strings.TrimSuffix(n.Strip, "/"))
	} else {
		if len(segments) < 2 {
			return "", false
		}
		scheme, authority, other := strings.Cut(strings.TrimPrefix(segments[0], markReserved), "=")
		if !other {
			scheme, authority = "https", scheme
		}
		text, ok := unescape(scheme + "://" + strings.ReplaceAll(authority, "+", ":"))
		if !ok {
			return "", false
		}
		b.WriteString(text)
		segments = segments[1:]
	}
	for i, s := range segments {
		s = strings.TrimPrefix(s, markReserved)
		if root, cut := strings.CutPrefix(s, markRoot); cut && i == 0 && len(segments) == 1 && !stripped {
			s = root
		} else {
			b.WriteByte('/')
		}
		if s == markEmpty || s == markIndex {
			continue
		}
		text, ok := unescape(s)
		if !ok {
			return "", false
		}
		b.WriteString(text)
	}
	return b.String(), resourcesync.CheckURI("loc", b.String()) == nil
}

// unescape replaces the escapes of appendByte with their bytes.
func unescape(s string) (string, bool) {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(s, "%~")
		b.WriteString(before)
		if !found {
			return b.String(), true
		}
		if len(after) < 2 || strings.ToUpper(after[:2]) != after[:2] {
			return "", false
		}
		c, err := hex.DecodeString(after[:2])
		if err != nil {
			return "", false
		}
		b.Write(c)
		s = after[2:]
	}
}
