package resourcesync

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"
)

// with returns a change that is valid but for what edit does to it.
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
		rule   string // part of it; valid when empty
	}{
		{"least", with(func(*Change) {}), ""},
		{"no loc", loc(""), "loc is missing"},
		{"relative loc", loc("/a"), "absolute URI"},
		{"host only", loc("example.org/a"), "absolute URI"},
		{"scheme only", loc("https:"), "no host"},
		{"no host", loc("https:///a"), "no host"},
		{"no host but a port", loc("https://:80/a"), "no host"},
		{"no host but a user", loc("https://me@/a"), "no host"},
		{"scheme in capitals", loc("HTTPS:a"), "no host"},
		{"bad scheme", loc("1http://example.org/"), "absolute URI"},
		{"urn", loc("urn:isbn:0451450523"), ""},
		{"gsiftp", loc("gsiftp://gridftp.example.com/res1"), ""},
		{"fragment", loc("https://example.org/a#b?c"), ""},
		{"two fragments", loc("https://example.org/a#b#c"), `one "#"`},
		{"every character", loc("https://u:p@[::1]:80/a-._~!$&'()*+,;=:@%2f/?x=/?#/?"), ""},
		{"bracket", loc("https://example.org/a[1]"), "bracket"},
		{"space", loc("https://example.org/a b"), "no spaces"},
		{"trailing space", loc("https://example.org/a "), "no spaces"},
		{"line end", loc("https://example.org/a\nb"), "no spaces"},
		{"NUL", loc("https://example.org/a\x00"), "no spaces"},
		{"quote", loc(`https://example.org/"`), "does not have the character"},
		{"less than", loc("https://example.org/<a>"), "does not have the character"},
		{"backslash", loc(`https://example.org\a`), "does not have the character"},
		{"IRI", loc("https://example.org/é"), "percent-encoded"},
		{"not UTF-8", loc("https://example.org/\xff"), "percent-encoded"},
		{"bad percent", loc("https://example.org/%2"), "two hex digits"},
		{"bad percent in the middle", loc("https://example.org/%zz/"), "two hex digits"},
		{"longest loc", loc("https://e.org/" + strings.Repeat("a", 2034)), ""},
		{"loc too long", loc("https://e.org/" + strings.Repeat("a", 2035)), "longer than 2048"},

		{"no change", with(func(c *Change) { c.Change = "" }), "change is missing"},
		{"unknown change", with(func(c *Change) { c.Change = "moved" }), `not "moved"`},
		{"change in capitals", with(func(c *Change) { c.Change = "Updated" }), `not "Updated"`},
		{"times", with(func(c *Change) { c.Datetime, c.Lastmod = time.Unix(0, 0), time.Unix(1, 0) }), ""},
		{"datetime far off", with(func(c *Change) { c.Datetime = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) }), "datetime: the year"},
		{"lastmod far off", with(func(c *Change) { c.Lastmod = time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC) }), "lastmod: the year"},
		{"changefreq", with(func(c *Change) { c.Changefreq = "weekly" }), ""},
		{"unknown changefreq", with(func(c *Change) { c.Changefreq = "often" }), `not "often"`},

		{"md5", hash(md5), ""},
		{"two hashes", hash(md5 + " " + sha256), ""},
		{"hashes on two lines", hash(" " + md5 + "\n\t " + sha256), ""},
		{"sha-1", hash("sha-1:" + strings.Repeat("0", 40)), ""},
		{"sha-512", hash("SHA-512:" + strings.Repeat("0", 128)), ""},
		{"unknown algorithm", hash("blake3:abc"), ""},
		{"no algorithm", hash(strings.Repeat("0", 32)), "names its algorithm"},
		{"empty algorithm", hash(":00"), "names its algorithm"},
		{"second without algorithm", hash(md5 + " 0abc"), "names its algorithm"},
		{"bad algorithm", hash("md[5]:00"), "not the name"},
		{"empty digest", hash("md5:"), "no digest"},
		{"not hex", hash("md5:" + strings.Repeat("0g", 16)), "hex digits"},
		{"md5 too short", hash("md5:00"), "md5 has 32 hex digits, not 2"},
		{"sha-1 too long", hash("sha-1:" + strings.Repeat("0", 41)), "sha-1 has 40"},
		{"sha-256 of md5's length", hash("sha-256:" + strings.Repeat("0", 32)), "sha-256 has 64"},
		{"sha-512 of sha-256's length", hash("sha-512:" + strings.Repeat("0", 64)), "sha-512 has 128"},
		{"too many hashes", hash(strings.Repeat(md5+" ", 28)), "longer than 1024"},

		{"empty resource", with(func(c *Change) { c.Length = size(0) }), ""},
		{"negative length", with(func(c *Change) { c.Length = size(-1) }), "length is not negative"},
		{"type", typ("application/pdf"), ""},
		{"type with a plus", typ("application/ld+json"), ""},
		{"type with parameters", typ(`application/ld+json; profile="http://a/ b"; charset=utf-8`), ""},
		{"type without a slash", typ("pdf"), "media type"},
		{"type without a subtype", typ("application/"), "media type"},
		{"type with two slashes", typ("a/b/c"), "media type"},
		{"two types", typ("text/html, text/plain"), "media type"},
		{"broken parameter", typ("text/html; charset"), "media type"},
		{"type with a line end", typ("text/html;\ncharset=utf-8"), "control"},
		{"type too long", typ("a/" + strings.Repeat("b", 1023)), "longer than 1024"},
		{"encoding", with(func(c *Change) { c.Encoding = "gzip" }), ""},
		{"encoding not XML", with(func(c *Change) { c.Encoding = "g\uFFFEzip" }), "U+FFFE"},
		{"encoding not UTF-8", with(func(c *Change) { c.Encoding = "gzip\xc3" }), "UTF-8"},
		{"encoding with spaces around", with(func(c *Change) { c.Encoding = " gzip" }), "either end"},

		{"path", path("/a/b c/ü.pdf"), ""},
		{"relative path", path("a"), `begins with "/"`},
		{"directory", path("/a/"), `does not end`},
		{"root", path("/"), `does not end`},
		{"path with a line end", path("/a\nb"), "control"},
		{"path with a vertical tab", path("/a\vb"), "U+000B"},
		{"path too long", path("/" + strings.Repeat("a", 1024)), "longer than 1024"},

		{"links", link(func(l *Link) { l.Pri, l.Profile = 999_999, "http://purl.org/dc/terms/" }), ""},
		{"rel as a URI", link(func(l *Link) { l.Rel = "http://purl.org/dc/terms/isPartOf" }), ""},
		{"patch", link(func(l *Link) { l.Rel, l.Type = "http://www.openarchives.org/rs/terms/patch", "application/json-patch" }), ""},
		{"patch without a type", link(func(l *Link) { l.Rel = "http://www.openarchives.org/rs/terms/patch" }), "ln 2: type is missing"},
		{"no rel", link(func(l *Link) { l.Rel = "" }), "ln 2: rel is missing"},
		{"no href", link(func(l *Link) { l.Href = "" }), "ln 2: href is missing"},
		{"rel in capitals", link(func(l *Link) { l.Rel = "describedBy" }), "ln 2: rel is one"},
		{"two rels", link(func(l *Link) { l.Rel = "up self" }), "ln 2: rel is one"},
		{"rel too long", link(func(l *Link) { l.Rel = strings.Repeat("a", 1025) }), "longer than 1024"},
		{"relative href", link(func(l *Link) { l.Href = "a" }), "ln 2: href: it is not an absolute"},
		{"relative profile", link(func(l *Link) { l.Profile = "a" }), "ln 2: profile:"},
		{"pri too high", link(func(l *Link) { l.Pri = 1_000_000 }), "pri is 1 to 999999"},
		{"negative pri", link(func(l *Link) { l.Pri = -1 }), "pri is 1 to 999999"},
		{"link's hash", link(func(l *Link) { l.Hash = "00" }), "ln 2: a hash names"},
		{"link's length", link(func(l *Link) { l.Length = size(-5) }), "ln 2: length"},
		{"link's modified", link(func(l *Link) { l.Modified = time.Unix(1<<40, 0) }), "ln 2: modified"},
		{"link's attribute", link(func(l *Link) { l.Attrs = []Attr{{"", "a", "b"}} }), "ln 2: attribute"},
		{"most links", with(func(c *Change) {
			for range 100 {
				c.Links = append(c.Links, Link{Rel: "up", Href: "urn:x:y"})
			}
		}), ""},
		{"too many links", with(func(c *Change) { c.Links = make([]Link, 101) }), "at most 100 links"},

		{"attribute", attr(Attr{"http://purl.org/dc/terms/", "title", "A\nB ü"}), ""},
		{"xml:lang", attr(Attr{"http://www.w3.org/XML/1998/namespace", "lang", "de"}), ""},
		{"attribute of none", attr(Attr{"", "title", "A"}), "not a foreign namespace"},
		{"attribute of the standard", attr(Attr{"http://www.openarchives.org/rs/terms/", "hash", "A"}), "not a foreign namespace"},
		{"attribute of the sitemap", attr(Attr{"http://www.sitemaps.org/schemas/sitemap/0.9", "loc", "A"}), "not a foreign namespace"},
		{"declaration", attr(Attr{"http://www.w3.org/2000/xmlns/", "dc", "urn:x"}), "not a foreign namespace"},
		{"no attribute name", attr(Attr{"urn:x:y", "", "A"}), "the name is"},
		{"attribute injection", attr(Attr{"urn:x:y", `a="b" c`, "A"}), "the name is"},
		{"attribute with a prefix", attr(Attr{"urn:x:y", "a:b", "A"}), "the name is"},
		{"attribute with a digit first", attr(Attr{"urn:x:y", "1a", "A"}), "the name is"},
		{"namespace with a brace", attr(Attr{"urn:x}y", "a", "A"}), "not a URI"},
		{"namespace not UTF-8", attr(Attr{"urn:\xff", "a", "A"}), "UTF-8"},
		{"namespace too long", attr(Attr{strings.Repeat("a", 2049), "a", "A"}), "longer than 2048"},
		{"value with NUL", attr(Attr{"urn:x:y", "a", "A\x00"}), "U+0000"},
		{"value too long", attr(Attr{"urn:x:y", "a", strings.Repeat("A", 1025)}), "longer than 1024"},
		{"attribute twice", attr(Attr{"urn:x:y", "a", "A"}, Attr{"urn:x:z", "a", "A"}, Attr{"urn:x:y", "a", "B"}), "twice"},
		{"most attributes", attr(manyAttrs(100)...), ""},
		{"too many attributes", attr(manyAttrs(101)...), "at most 100 foreign"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := test.change.Validate()
			if test.rule == "" {
				if err != nil {
					t.Errorf("Validate() = %v, want nil", err)
				}
				return
			}
			var e *Error
			if !errors.As(err, &e) || !errors.Is(err, ErrInvalid) {
				t.Fatalf("Validate() = %v, want ErrInvalid", err)
			}
			if !strings.Contains(e.Msg, test.rule) {
				t.Errorf("Rule = %q, want one with %q", e.Msg, test.rule)
			}
			if strings.ContainsAny(e.Error(), "\x00\n") || len(e.Error()) > 600 {
				t.Errorf("Error() = %q is not fit for a log", e.Error())
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

func TestValidateNormalisesHash(t *testing.T) {
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
		if got := test.err.Error(); got != test.want {
			t.Errorf("Error() = %q, want %q", got, test.want)
		}
		if !errors.Is(&test.err, test.err.Err) {
			t.Errorf("%v is not %v", &test.err, test.err.Err)
		}
	}
}
