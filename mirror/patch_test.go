package mirror

import (
	"strings"
	"testing"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// with gives an entry a link to a patch.
func with(e feed.Entry, href, mediaType string) feed.Entry {
	e.Change.Links = []resourcesync.Link{{Rel: "describedby", Href: "https://example.org/"}, {Rel: resourcesync.RelPatch, Href: href, Type: mediaType}}
	return e
}

// A content is made of the one before it and a patch, and is what the source has, byte for byte.
func TestPatch(t *testing.T) {
	const patch = `[{"op":"replace","path":"/b","value":[1,"<&>"]},{"op":"add","path":"/c/-","value":{"z":1,"a":2.50}},{"op":"remove","path":"/d"}]`
	for name, texts := range map[string][2]string{
		"compact":  {`{"z":1,"b":null,"c":[],"d":"x"}`, `{"z":1,"b":[1,"<&>"],"c":[{"z":1,"a":2.50}]}`},
		"a line":   {`{"z":1,"b":null,"c":[],"d":"x"}` + "\n", `{"z":1,"b":[1,"<&>"],"c":[{"z":1,"a":2.50}]}` + "\n"},
		"Python":   {`{"z": 1, "b": null, "c": ["a, b: c"], "d": "x"}`, `{"z": 1, "b": [1, "<&>"], "c": ["a, b: c", {"z": 1, "a": 2.50}]}`},
		"indented": {"{\n  \"b\": null,\n  \"c\": [\n    1\n  ],\n  \"d\": {}\n}\n", "{\n  \"b\": [\n    1,\n    \"<&>\"\n  ],\n  \"c\": [\n    1,\n    {\n      \"z\": 1,\n      \"a\": 2.50\n    }\n  ]\n}\n"},
		"tabs":     {"{\n\t\"c\": [],\n\t\"d\": 1,\n\t\"b\": 1\n}", "{\n\t\"c\": [\n\t\t{\n\t\t\t\"z\": 1,\n\t\t\t\"a\": 2.50\n\t\t}\n\t],\n\t\"b\": [\n\t\t1,\n\t\t\"<&>\"\n\t]\n}"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.set("/r", texts[0])
			b.apply(b.entry("/r", texts[0]))
			b.set("/r", texts[1])
			b.set("/patch", patch)
			b.requests("/r")
			b.apply(with(b.entry("/r", texts[1]), b.URL+"/patch", "application/json-patch+json; charset=utf-8"))
			b.has("r", texts[1])
			if whole, patches := b.requests("/r"), b.requests("/patch"); whole != 0 || patches != 1 {
				t.Errorf("the content was asked for %d times, and the patch %d times", whole, patches)
			}
		})
	}
}

// Where a patch does not help, the content is got whole, and is the same.
func TestPatchOfNoUse(t *testing.T) {
	const old, now, good = `{"a":1,"long":"0123456789"}`, `{"a":2,"long":"0123456789"}`, `[{"op":"replace","path":"/a","value":2}]`
	for name, test := range map[string]struct {
		old, patch, mediaType string
		asked                 int // for the patch
		change                func(c *resourcesync.Change)
	}{
		"another format": {old, good, "application/xml-patch+xml", 0, nil},
		"no format":      {old, good, "", 0, nil},
		"no hash":        {old, good, "application/json-patch", 0, func(c *resourcesync.Change) { c.Hash = "" }},
		"a longer patch": {old, good, "application/json-patch", 0, func(c *resourcesync.Change) {
			n, more := int64(len(now)), int64(len(now)+9)
			c.Length, c.Links[1].Length = &n, &more
		}},
		"an unknown style":   {`{"a" :1,"long":"0123456789"}`, good, "application/json-patch", 0, nil},
		"no JSON":            {"a=1", good, "application/json-patch", 0, nil},
		"another version":    {`{"a":1,"long":"9876543210"}`, good, "application/json-patch", 1, nil},
		"a wrong patch":      {old, `[{"op":"replace","path":"/a","value":3}]`, "application/json-patch", 1, nil},
		"a path to nothing":  {old, `[{"op":"remove","path":"/x/y"}]`, "application/json-patch", 1, nil},
		"a failed test":      {old, `[{"op":"test","path":"/a","value":7}]`, "application/json-patch", 1, nil},
		"no patch":           {old, `{"a":2}`, "application/json-patch", 1, nil},
		"a bomb":             {old, `[` + strings.Repeat(`{"op":"copy","from":"","path":"/b"},`, 100) + `{"op":"test","path":"/a","value":1}]`, "application/json-patch", 1, nil},
		"too long":           {old, `[` + strings.Repeat(" ", patchMost) + good[1:], "application/json-patch", 1, nil},
		"not what was named": {old, good, "application/json-patch", 1, func(c *resourcesync.Change) { c.Links[1].Hash = sumOf("x") }},
		"it is not there":    {old, "", "application/json-patch", 1, nil},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.set("/r", test.old)
			b.apply(b.entry("/r", test.old))
			b.set("/r", now)
			if test.patch != "" {
				b.set("/patch", test.patch)
			}
			b.requests("/r")
			e := with(b.entry("/r", now), b.URL+"/patch", test.mediaType)
			if test.change != nil {
				test.change(&e.Change)
			}
			b.apply(e)
			b.has("r", now)
			if b.requests("/r") != 1 {
				t.Error("the content was not asked for once")
			}
			if n := b.requests("/patch"); test.patch != "" && n != test.asked {
				t.Errorf("the patch was asked for %d times", n)
			}
		})
	}
}

// What somebody has written into a file is not patched.
func TestPatchOfAForeignFile(t *testing.T) {
	b := newBench(t)
	const old, now = `{"a":1}`, `{"a":2}`
	b.set("/r", old)
	b.apply(b.entry("/r", old))
	if err := b.home.Root.WriteFile("r", []byte(`{"a":1,"b":7}`), 0o666); err != nil {
		t.Fatal(err)
	}
	b.set("/r", now)
	b.set("/patch", `[{"op":"replace","path":"/a","value":2}]`)
	b.apply(with(b.entry("/r", now), b.URL+"/patch", "application/json-patch"))
	b.has("r", now)
	if b.requests("/patch") != 0 {
		t.Error("the patch was asked for")
	}
}
