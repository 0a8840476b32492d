package feed

import (
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/rshub/rshub/resourcesync"
)

// fullChange returns a valid change that has every field, with texts made of s and
// with a number of links and of attributes.
func fullChange(s string, links, attrs int) resourcesync.Change {
	s = strings.Map(func(r rune) rune {
		if r < 0x20 && r != '\t' && r != '\n' && r != '\r' || r == 0xFFFE || r == 0xFFFF {
			return '\\'
		}
		return r
	}, strings.ToValidUTF8(s, "&"))
	s = strings.ToValidUTF8(s[:min(len(s), 200)], "")
	line := strings.Map(func(r rune) rune {
		if r <= 0x20 || 0x7F <= r && r < 0xA0 {
			return '"'
		}
		return r
	}, s)
	uri := "https://example.org/" + strings.Map(func(r rune) rune {
		if strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789&'()*+,;=:@/?-._~!$", r) {
			return r
		}
		return '&'
	}, s)
	length := int64(1<<63 - 1)
	at := time.Date(2026, 12, 31, 23, 59, 59, 123456789, time.UTC)
	hash := "sha-256:" + strings.Repeat("a", 64) + " md5:" + strings.Repeat("b", 32)
	foreign := func() (all []resourcesync.Attr) {
		for i := range attrs {
			all = append(all, resourcesync.Attr{Namespace: "urn:" + strings.Map(func(r rune) rune {
				if r == '{' || r == '}' || r == ' ' {
					return '<'
				}
				return r
			}, line) + string(rune('a'+i%26)), Name: "a" + strings.Repeat("b", i), Value: s})
		}
		return all
	}
	c := resourcesync.Change{
		Loc: uri, Change: resourcesync.Deleted, Datetime: at, Lastmod: at, Changefreq: "monthly", Hash: hash, Length: &length,
		Type: `text/plain; x="` + strings.Repeat("&", len(line)) + `"`, Encoding: "x" + line + "x", Path: "/" + line + "x", Attrs: foreign(),
	}
	for range links {
		c.Links = append(c.Links, resourcesync.Link{
			Rel: uri, Href: uri, Pri: 999_999, Modified: at, Hash: hash, Length: &length, Type: c.Type,
			Encoding: c.Encoding, Path: c.Path, Profile: uri, Attrs: foreign(),
		})
	}
	return c
}

// Nothing that is written or kept of a change is larger than its Size, whichever
// fields are long, and whatever has to be escaped.
func FuzzSize(f *testing.F) {
	for _, s := range []string{
		"", "a", strings.Repeat("x", 1000), strings.Repeat(`"`, 1000), strings.Repeat("&", 1000), strings.Repeat("<>", 500),
		strings.Repeat("\\", 1000), strings.Repeat("\t\n\r", 333), strings.Repeat("é€😀", 100), "\x7f\u2028\ufffd\u0085",
	} {
		f.Add(s, uint8(0), uint8(0))
		f.Add(s, uint8(1), uint8(1))
		f.Add(s, uint8(3), uint8(30))
	}
	f.Fuzz(func(t *testing.T, s string, links, attrs uint8) {
		c := fullChange(s, int(links)%4, int(attrs)%50)
		if err := c.Validate(); err != nil {
			t.Fatalf("%v: %+v", err, c)
		}
		b := NewBatch("a", Cursor{MaxNumber - 1, MaxNumber - 1}, Cursor{MaxNumber, MaxNumber}, []resourcesync.Change{c})
		b.Diverged = true
		e := &b.Entries[0]
		size := c.Size()
		for form, n := range map[string]int{
			"JSON":   len(e.AppendJSON(nil)) + len(","),
			"NDJSON": len(NDJSON.Append(nil, b, "")),
			"XML":    len(NewXMLWriter().AppendEntry(nil, e)),
			"memory": int(unsafe.Sizeof(*e)) + 8 + len(c.Links)*int(unsafe.Sizeof(resourcesync.Link{})),
		} {
			if n > size {
				t.Errorf("as %s it has %d bytes, and its Size is %d: %+v", form, n, size, c)
			}
		}
		b.Set = strings.Repeat("s", 63)
		if n := max(len(b.JSON()), len(b.XML())); n > b.Size() {
			t.Errorf("the batch has %d bytes, and its Size is %d", n, b.Size())
		}
	})
}

// The Size of an ordinary change is not far from what is written, so that what is cut
// by Size is not much smaller than its bound.
func TestSizeIsTight(t *testing.T) {
	c := resourcesync.Change{Loc: "https://repository.example.org/records/10.5281/zenodo.1234567", Change: resourcesync.Updated,
		Lastmod: time.Unix(1_700_000_000, 0).UTC(), Hash: "md5:1584abdf8ebdc9802ac0c6a7402c03b6", Type: "text/html"}
	full := fullChange(strings.Repeat("x&", 100), 3, 3)
	for _, c := range []*resourcesync.Change{&c, &full} {
		e := &Entry{Cursor{1000, 1_700_000_000_000_000}, *c}
		if n := max(len(e.AppendJSON(nil)), len(NewXMLWriter().AppendEntry(nil, e))); c.Size() > 2*n {
			t.Errorf("%d bytes are written, and its Size is %d", n, c.Size())
		}
	}
}

// Whichever field is long, a part that is pushed has at most 512,000 bytes in every
// format, unless it is a single entry.
func TestSplitKeepsItsBound(t *testing.T) {
	long := strings.Repeat(`&"<`, 300)
	for name, set := range map[string]func(*resourcesync.Change){
		"path":     func(c *resourcesync.Change) { c.Path = "/" + long },
		"encoding": func(c *resourcesync.Change) { c.Encoding = long },
		"attribute": func(c *resourcesync.Change) {
			c.Attrs = []resourcesync.Attr{{Namespace: "urn:x", Name: "a", Value: long}}
		},
		"attribute's name": func(c *resourcesync.Change) {
			c.Attrs = []resourcesync.Attr{{Namespace: "urn:x", Name: strings.Repeat("a", 1000), Value: "b"}}
		},
		"link's path": func(c *resourcesync.Change) {
			c.Links = []resourcesync.Link{{Rel: "up", Href: "urn:x:a", Path: "/" + long}}
		},
		"link's profile": func(c *resourcesync.Change) {
			c.Links = []resourcesync.Link{{Rel: "up", Href: "urn:x:a", Profile: "urn:x:" + strings.Repeat("&", 900)}}
		},
		"link's rel": func(c *resourcesync.Change) {
			c.Links = []resourcesync.Link{{Rel: "urn:x:" + strings.Repeat("&", 900), Href: "urn:x:a"}}
		},
		"link's type": func(c *resourcesync.Change) {
			c.Links = []resourcesync.Link{{Rel: "up", Href: "urn:x:a", Type: "text/" + strings.Repeat("x", 900)}}
		},
		"everything":          func(c *resourcesync.Change) { *c = fullChange(long, 3, 3) },
		"larger than a frame": func(c *resourcesync.Change) { *c = fullChange(long, 90, 20) },
	} {
		t.Run(name, func(t *testing.T) {
			c := resourcesync.Change{Loc: "urn:x:a", Change: resourcesync.Updated}
			set(&c)
			changes := make([]resourcesync.Change, 300)
			for i := range changes {
				changes[i] = c
			}
			if name == "larger than a frame" {
				changes = changes[:3]
			}
			b := NewBatch("a", Cursor{0, 1}, Cursor{uint64(len(changes)), 1000}, changes)
			entries := 0
			for _, part := range b.Split() {
				if n := max(len(part.JSON()), len(part.XML())); n > splitBytes && len(part.Entries) > 1 {
					t.Errorf("a part of %d entries has %d bytes", len(part.Entries), n)
				}
				entries += len(part.Entries)
			}
			if entries != len(changes) {
				t.Errorf("the parts have %d of %d entries", entries, len(changes))
			}
		})
	}
}
