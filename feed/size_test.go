package feed

import (
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/rshub/rshub/resourcesync"
)

// fullChange returns a valid change with every field, whose texts are made of s, and with the given
// numbers of links and attributes.
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

// FuzzSize checks that no encoding of a change, and not its memory, exceeds its Size, for long
// fields and for text that needs escaping.
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
			t.Fatalf("Validate() = %v for %+v", err, c)
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
				t.Errorf("%s has %d bytes, want at most Size() = %d: %+v", form, n, size, c)
			}
		}
		b.Set = strings.Repeat("s", 63)
		if n := max(len(b.JSON()), len(b.XML())); n > b.Size() {
			t.Errorf("batch has %d bytes, want at most Size() = %d", n, b.Size())
		}
	})
}

// TestSizeTight checks that the Size of a change is at most twice its encodings, so that parts that
// are cut by Size are not much smaller than the limit.
func TestSizeTight(t *testing.T) {
	c := resourcesync.Change{Loc: "https://repository.example.org/records/10.5281/zenodo.1234567", Change: resourcesync.Updated,
		Lastmod: time.Unix(1_700_000_000, 0).UTC(), Hash: "md5:1584abdf8ebdc9802ac0c6a7402c03b6", Type: "text/html"}
	full := fullChange(strings.Repeat("x&", 100), 3, 3)
	for _, c := range []*resourcesync.Change{&c, &full} {
		e := &Entry{Cursor{1000, 1_700_000_000_000_000}, *c}
		if n := max(len(e.AppendJSON(nil)), len(NewXMLWriter().AppendEntry(nil, e))); c.Size() > 2*n {
			t.Errorf("Size() = %d, want at most twice the encoding of %d bytes", c.Size(), n)
		}
	}
}

// TestSplitBytes checks that a part has at most 512,000 bytes in every format, unless it has a
// single entry, whichever field is long.
func TestSplitBytes(t *testing.T) {
	long := strings.Repeat(`&"<`, 300)
	for name, set := range map[string]func(*resourcesync.Change){
		"path":     func(c *resourcesync.Change) { c.Path = "/" + long },
		"encoding": func(c *resourcesync.Change) { c.Encoding = long },
		"attribute": func(c *resourcesync.Change) {
			c.Attrs = []resourcesync.Attr{{Namespace: "urn:x", Name: "a", Value: long}}
		},
		"attribute name": func(c *resourcesync.Change) {
			c.Attrs = []resourcesync.Attr{{Namespace: "urn:x", Name: strings.Repeat("a", 1000), Value: "b"}}
		},
		"link path": func(c *resourcesync.Change) {
			c.Links = []resourcesync.Link{{Rel: "up", Href: "urn:x:a", Path: "/" + long}}
		},
		"link profile": func(c *resourcesync.Change) {
			c.Links = []resourcesync.Link{{Rel: "up", Href: "urn:x:a", Profile: "urn:x:" + strings.Repeat("&", 900)}}
		},
		"link rel": func(c *resourcesync.Change) {
			c.Links = []resourcesync.Link{{Rel: "urn:x:" + strings.Repeat("&", 900), Href: "urn:x:a"}}
		},
		"link type": func(c *resourcesync.Change) {
			c.Links = []resourcesync.Link{{Rel: "up", Href: "urn:x:a", Type: "text/" + strings.Repeat("x", 900)}}
		},
		"all fields":         func(c *resourcesync.Change) { *c = fullChange(long, 3, 3) },
		"larger than a part": func(c *resourcesync.Change) { *c = fullChange(long, 90, 20) },
	} {
		t.Run(name, func(t *testing.T) {
			c := resourcesync.Change{Loc: "urn:x:a", Change: resourcesync.Updated}
			set(&c)
			changes := make([]resourcesync.Change, 300)
			for i := range changes {
				changes[i] = c
			}
			if name == "larger than a part" {
				changes = changes[:3]
			}
			b := NewBatch("a", Cursor{0, 1}, Cursor{uint64(len(changes)), 1000}, changes)
			entries := 0
			for _, part := range b.Split() {
				if n := max(len(part.JSON()), len(part.XML())); n > splitBytes && len(part.Entries) > 1 {
					t.Errorf("part of %d entries has %d bytes, want at most %d", len(part.Entries), n, splitBytes)
				}
				entries += len(part.Entries)
			}
			if entries != len(changes) {
				t.Errorf("parts have %d entries, want %d", entries, len(changes))
			}
		})
	}
}
