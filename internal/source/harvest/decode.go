package harvest

import (
	"bufio"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/html/charset"
	"golang.org/x/text/runes"
	"golang.org/x/text/transform"

	"github.com/rshub/rshub/internal/xmlrepair"
	"github.com/rshub/rshub/resourcesync"
)

// declared is how much of a document is searched for its encoding and for HTML, in bytes.
const declared = 1 << 10

var (
	encodingDeclaration = regexp.MustCompile(`^\s*<\?xml\b[^>]*\sencoding\s*=\s*["']([^"'<>]*)["']`)
	beforeRoot          = regexp.MustCompile(`(?s)^(\s+|<\?.*?\?>|<!--.*?-->)+`)
	htmlStart           = regexp.MustCompile(`(?i)^<(!doctype\s+html|html|head|body|title|script|meta)\b`)
)

// DecodeXML returns an XML document as UTF-8, whatever encoding it declares, and without a byte
// order mark. The caller must refuse UTF-16 and UTF-32. An error is a *resourcesync.Error: the
// encoding is unknown, or the document is a web page.
func DecodeXML(r io.Reader) (*bufio.Reader, error) {
	in := bufio.NewReaderSize(r, 32<<10)
	mark, _ := in.Peek(len(utf8Mark)) // the first read returns the error again
	marked := string(mark) == utf8Mark
	if marked {
		_, _ = in.Discard(len(utf8Mark))
	}
	return decodeXML(in, marked)
}

// utf8Mark is the byte order mark of UTF-8. It overrides the encoding that a document declares.
const utf8Mark = "\ufeff"

// decodeXML is DecodeXML after the byte order mark. marked reports whether there was one.
func decodeXML(in *bufio.Reader, marked bool) (*bufio.Reader, error) {
	begin, _ := in.Peek(declared) // the first read returns the error again
	if htmlStart.Match(begin[len(beforeRoot.Find(begin)):]) {
		return nil, resourcesync.Invalidf("this is a web page (HTML)")
	}
	label := encodingDeclaration.FindSubmatch(begin)
	if label == nil || marked {
		return in, nil
	}
	said := string(label[1])
	if lower := strings.ToLower(strings.TrimSpace(said)); lower == "us-ascii" || lower == "ascii" || strings.HasPrefix(lower, "utf-16") {
		// US-ASCII is a subset of UTF-8. In UTF-16, the declaration would not have been found: it
		// is left over from before the text was converted.
		return in, nil
	}
	switch e, name := charset.Lookup(said); name {
	case "utf-8":
		return in, nil
	case "", "replacement", "x-user-defined":
		return nil, resourcesync.Invalidf("unsupported encoding %q: want UTF-8", resourcesync.Shorten(said))
	default:
		damaged := runes.Map(func(r rune) rune {
			if r == utf8.RuneError {
				return xmlrepair.Damage
			}
			return r
		})
		return bufio.NewReaderSize(transform.NewReader(in, transform.Chain(e.NewDecoder(), damaged)), 32<<10), nil
	}
}
