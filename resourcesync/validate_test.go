package resourcesync

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"
)

// with returns a valid change that edit has modified.
func with(edit func(*Change)) *Change {
	c := &Change{Loc: "https://example.org/a", Change: Updated}
	edit(c)
	return c
}

func size(n int64) *int64 { return &n }

func TestChangeValidate(t *testing.T) {
	loc := func(s string) *Change { return with(func(c *Change) { c.Loc = s }) }
	hash := func(s string) *Change { return with(func(c *Change) { c.Hash = s }) }
	typ := func(s string) *Change { return with(func(c *Change) { c.Type = s }) }
	path := func(s string) *Change { return with(func(c *Change) { c.Path = s }) }
	attr := func(a ...Attr) *Change { return with(func(c *Change) { c.Attrs = a }) }
	link := func(edit func(*Link)) *Change {
		return with(func(c *Change) {
			c.Links = []Link{{Rel: "up", Href: "https://example.org/"}, {Rel: "duplicate", Href: "https://example.com/a"}}
			edit(&c.Links[1])
		})
	}
	md5 := "md5:" + strings.Repeat("0a", 16)
	sha256 := "sha-256:" + strings.Repeat("0A", 32)

	for _, test := range []struct {
		name   string
		change *Change
		msg    string // substring of the message; empty if the change is valid
	}{
		{"only required fields", with(func(*Change) {}), ""},
		{"no loc", loc(""), "loc is missing"},
		{"relative loc", loc("/a"), "absolute URI"},
		{"no scheme", loc("example.org/a"), "absolute URI"},
		{"scheme only", loc("https:"), "want a URI with a host"},
		{"no host", loc("https:///a"), "want a URI with a host"},
		{"port without a host", loc("https://:80/a"), "want a URI with a host"},
		{"user without a host", loc("https://me@/a"), "want a URI with a host"},
		{"scheme in upper case", loc("HTTPS:a"), "want a URI with a host"},
		{"bad scheme", loc("1http://example.org/"), "absolute URI"},
		{"urn", loc("urn:isbn:0451450523"), ""},
		{"gsiftp", loc("gsiftp://gridftp.example.com/res1"), ""},
		{"fragment", loc("https://example.org/a#b?c"), ""},
		{"two fragments", loc("https://example.org/a#b#c"), `want at most one`},
		{"all characters of a URI", loc("https://u:p@[::1]:80/a-._~!$&'()*+,;=:@%2f/?x=/?#/?"), ""},
		{"bracket", loc("https://example.org/a[1]"), `bracket "[" is allowed only in the host`},
		{"space", loc("https://example.org/a b"), "spaces and control characters are not allowed"},
		{"trailing space", loc("https://example.org/a "), "spaces and control characters are not allowed"},
		{"line end", loc("https://example.org/a\nb"), "spaces and control characters are not allowed"},
		{"NUL", loc("https://example.org/a\x00"), "spaces and control characters are not allowed"},
		{"quote", loc(`https://example.org/"`), "is not allowed; percent-encode it"},
		{"less than", loc("https://example.org/<a>"), "is not allowed; percent-encode it"},
		{"backslash", loc(`https://example.org\a`), "is not allowed; percent-encode it"},
		{"IRI", loc("https://example.org/é"), `character "é" is not ASCII`},
		{"not UTF-8", loc("https://example.org/\xff"), "is not ASCII; percent-encode it"},
		{"bad percent", loc("https://example.org/%2"), `got "%2", want "%" and two hex digits`},
		{"bad percent in the middle", loc("https://example.org/%zz/"), `got "%zz", want "%" and two hex digits`},
		{"longest loc", loc("https://e.org/" + strings.Repeat("a", 2034)), ""},
		{"loc too long", loc("https://e.org/" + strings.Repeat("a", 2035)), "want at most 2048"},

		{"no change", with(func(c *Change) { c.Change = "" }), "change is missing"},
		{"unknown change", with(func(c *Change) { c.Change = "moved" }), `change: got "moved", want`},
		{"change in upper case", with(func(c *Change) { c.Change = "Updated" }), `change: got "Updated", want`},
		{"times", with(func(c *Change) { c.Datetime, c.Lastmod = time.Unix(0, 0), time.Unix(1, 0) }), ""},
		{"datetime beyond year 9999", with(func(c *Change) { c.Datetime = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) }), "datetime: got year 10000"},
		{"lastmod before year 1", with(func(c *Change) { c.Lastmod = time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC) }), "lastmod: got year -1"},
		{"changefreq", with(func(c *Change) { c.Changefreq = "weekly" }), ""},
		{"unknown changefreq", with(func(c *Change) { c.Changefreq = "often" }), `changefreq: got "often", want`},

		{"md5", hash(md5), ""},
		{"two hashes", hash(md5 + " " + sha256), ""},
		{"hashes on two lines", hash(" " + md5 + "\n\t " + sha256), ""},
		{"sha-1", hash("sha-1:" + strings.Repeat("0", 40)), ""},
		{"sha-512", hash("SHA-512:" + strings.Repeat("0", 128)), ""},
		{"unknown algorithm", hash("blake3:abc"), ""},
		{"no algorithm", hash(strings.Repeat("0", 32)), "want an algorithm and a digest"},
		{"empty algorithm", hash(":00"), "want an algorithm and a digest"},
		{"second hash without algorithm", hash(md5 + " 0abc"), "want an algorithm and a digest"},
		{"bad algorithm", hash("md[5]:00"), `got algorithm "md[5]"`},
		{"empty digest", hash("md5:"), "without a digest"},
		{"digest not hex", hash("md5:" + strings.Repeat("0g", 16)), "want a digest in hex digits"},
		{"md5 too short", hash("md5:00"), "got 2 hex digits for md5, want 32"},
		{"sha-1 too long", hash("sha-1:" + strings.Repeat("0", 41)), "for sha-1, want 40"},
		{"sha-256 with the length of md5", hash("sha-256:" + strings.Repeat("0", 32)), "for sha-256, want 64"},
		{"sha-512 with the length of sha-256", hash("sha-512:" + strings.Repeat("0", 64)), "for sha-512, want 128"},
		{"too many hashes", hash(strings.Repeat(md5+" ", 28)), "want at most 1024"},

		{"empty resource", with(func(c *Change) { c.Length = size(0) }), ""},
		{"negative length", with(func(c *Change) { c.Length = size(-1) }), "length: got -1"},
		{"type", typ("application/pdf"), ""},
		{"type with a plus", typ("application/ld+json"), ""},
		{"type with parameters", typ(`application/ld+json; profile="http://a/ b"; charset=utf-8`), ""},
		{"type without a slash", typ("pdf"), "want a media type"},
		{"type without a subtype", typ("application/"), "want a media type"},
		{"type with two slashes", typ("a/b/c"), "want a media type"},
		{"two types", typ("text/html, text/plain"), "want a media type"},
		{"media type with an incomplete parameter", typ("text/html; charset"), "want a media type"},
		{"type with a line end", typ("text/html;\ncharset=utf-8"), "want no control characters"},
		{"type too long", typ("a/" + strings.Repeat("b", 1023)), "want at most 1024"},
		{"encoding", with(func(c *Change) { c.Encoding = "gzip" }), ""},
		{"encoding with a noncharacter", with(func(c *Change) { c.Encoding = "g\uFFFEzip" }), "U+FFFE"},
		{"encoding not UTF-8", with(func(c *Change) { c.Encoding = "gzip\xc3" }), "UTF-8"},
		{"encoding with a leading space", with(func(c *Change) { c.Encoding = " gzip" }), "want no leading or trailing space"},

		{"path", path("/a/b c/ü.pdf"), ""},
		{"relative path", path("a"), `starts with "/"`},
		{"path of a directory", path("/a/"), `does not end`},
		{"path of the root", path("/"), `does not end`},
		{"path with a line end", path("/a\nb"), "want no control characters"},
		{"path with a vertical tab", path("/a\vb"), "U+000B"},
		{"path too long", path("/" + strings.Repeat("a", 1024)), "want at most 1024"},

		{"links", link(func(l *Link) { l.Pri, l.Profile = 999_999, "http://purl.org/dc/terms/" }), ""},
		{"rel as a URI", link(func(l *Link) { l.Rel = "http://purl.org/dc/terms/isPartOf" }), ""},
		{"patch", link(func(l *Link) { l.Rel, l.Type = "http://www.openarchives.org/rs/terms/patch", "application/json-patch" }), ""},
		{"patch without a type", link(func(l *Link) { l.Rel = "http://www.openarchives.org/rs/terms/patch" }), "ln 2: type is missing"},
		{"no rel", link(func(l *Link) { l.Rel = "" }), "ln 2: rel is missing"},
		{"no href", link(func(l *Link) { l.Href = "" }), "ln 2: href is missing"},
		{"rel in mixed case", link(func(l *Link) { l.Rel = "describedBy" }), "ln 2: rel: got"},
		{"two rels", link(func(l *Link) { l.Rel = "up self" }), "ln 2: rel: got"},
		{"rel too long", link(func(l *Link) { l.Rel = strings.Repeat("a", 1025) }), "want at most 1024"},
		{"relative href", link(func(l *Link) { l.Href = "a" }), `ln 2: href: got "a", want an absolute URI`},
		{"relative profile", link(func(l *Link) { l.Profile = "a" }), "ln 2: profile:"},
		{"pri too high", link(func(l *Link) { l.Pri = 1_000_000 }), "pri: got 1000000, want 1 to 999999"},
		{"negative pri", link(func(l *Link) { l.Pri = -1 }), "pri: got -1, want 1 to 999999"},
		{"link with an invalid hash", link(func(l *Link) { l.Hash = "00" }), "ln 2: hash: got"},
		{"link with a negative length", link(func(l *Link) { l.Length = size(-5) }), "ln 2: length: got -5"},
		{"link modified beyond year 9999", link(func(l *Link) { l.Modified = time.Unix(1<<40, 0) }), "ln 2: modified"},
		{"link with an invalid attribute", link(func(l *Link) { l.Attrs = []Attr{{"", "a", "b"}} }), "ln 2: attribute"},
		{"most links", with(func(c *Change) {
			for range 100 {
				c.Links = append(c.Links, Link{Rel: "up", Href: "urn:x:y"})
			}
		}), ""},
		{"too many links", with(func(c *Change) { c.Links = make([]Link, 101) }), "too many links; want at most 100"},

		{"attribute", attr(Attr{"http://purl.org/dc/terms/", "title", "A\nB ü"}), ""},
		{"xml:lang", attr(Attr{"http://www.w3.org/XML/1998/namespace", "lang", "de"}), ""},
		{"attribute without a namespace", attr(Attr{"", "title", "A"}), "want a foreign one"},
		{"attribute in the ResourceSync namespace", attr(Attr{"http://www.openarchives.org/rs/terms/", "hash", "A"}), "want a foreign one"},
		{"attribute in the sitemap namespace", attr(Attr{"http://www.sitemaps.org/schemas/sitemap/0.9", "loc", "A"}), "want a foreign one"},
		{"attribute in the xmlns namespace", attr(Attr{"http://www.w3.org/2000/xmlns/", "dc", "urn:x"}), "want a foreign one"},
		{"no attribute name", attr(Attr{"urn:x:y", "", "A"}), "attribute name: got"},
		{"attribute injection", attr(Attr{"urn:x:y", `a="b" c`, "A"}), "attribute name: got"},
		{"attribute with a prefix", attr(Attr{"urn:x:y", "a:b", "A"}), "attribute name: got"},
		{"attribute starting with a digit", attr(Attr{"urn:x:y", "1a", "A"}), "attribute name: got"},
		{"namespace with a brace", attr(Attr{"urn:x}y", "a", "A"}), "want a URI"},
		{"namespace not UTF-8", attr(Attr{"urn:\xff", "a", "A"}), "UTF-8"},
		{"namespace too long", attr(Attr{strings.Repeat("a", 2049), "a", "A"}), "want at most 2048"},
		{"value with NUL", attr(Attr{"urn:x:y", "a", "A\x00"}), "U+0000"},
		{"value too long", attr(Attr{"urn:x:y", "a", strings.Repeat("A", 1025)}), "want at most 1024"},
		{"duplicate attribute", attr(Attr{"urn:x:y", "a", "A"}, Attr{"urn:x:z", "a", "A"}, Attr{"urn:x:y", "a", "B"}), "duplicate attribute a"},
		{"most attributes", attr(manyAttrs(100)...), ""},
		{"too many attributes", attr(manyAttrs(101)...), "too many foreign attributes; want at most 100"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := test.change.Validate()
			if test.msg == "" {
				if err != nil {
					t.Errorf("Validate() = %v, want nil", err)
				}
				return
			}
			var e *Error
			if !errors.As(err, &e) || !errors.Is(err, ErrInvalid) {
				t.Fatalf("Validate() = %v, want ErrInvalid", err)
			}
			if !strings.Contains(e.Msg, test.msg) {
				t.Errorf("Msg = %q, want substring %q", e.Msg, test.msg)
			}
			if strings.ContainsAny(e.Error(), "\x00\n") || len(e.Error()) > 600 {
				t.Errorf("Error() = %q, want one short line", e.Error())
			}
		})
	}
}

func manyAttrs(n int) []Attr {
	var attrs []Attr
	for i := range n {
		attrs = append(attrs, Attr{"urn:x:y", "a" + strconv.Itoa(i), "b"})
	}
	return attrs
}

func TestValidateNormalizesHash(t *testing.T) {
	c := with(func(c *Change) { c.Hash = " a:00\n  b:11 " })
	if err := c.Validate(); err != nil || c.Hash != "a:00 b:11" {
		t.Errorf("Validate() = %v, Hash = %q, want %q", err, c.Hash, "a:00 b:11")
	}
}

func TestError(t *testing.T) {
	for _, test := range []struct {
		err  Error
		want string
	}{
		{Error{Err: ErrInvalid, Msg: "wrong"}, "wrong"},
		{Error{Err: ErrInvalid, Msg: "wrong", Loc: "urn:x"}, "urn:x: wrong"},
		{Error{Err: ErrInvalid, Msg: "wrong", Entry: 2}, "entry 2: wrong"},
		{Error{Err: ErrInvalid, Msg: "wrong", Entry: 2, Loc: "urn:x"}, "entry 2 (urn:x): wrong"},
		{Error{Err: ErrTooLarge, Msg: "wrong", Entry: 2, Line: 7}, "line 7: entry 2: wrong"},
	} {
		t.Run(test.want, func(t *testing.T) {
			if got := test.err.Error(); got != test.want {
				t.Errorf("Error() = %q, want %q", got, test.want)
			}
			if !errors.Is(&test.err, test.err.Err) {
				t.Errorf("errors.Is(%v, %v) = false, want true", &test.err, test.err.Err)
			}
		})
	}
}
