package rdm

import (
	"bytes"
	"errors"
	"io"
	"iter"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/rshub/rshub/resourcesync"
)

// examples returns the examples of the standard in their transmitted form. The standard prints them
// without line ends and tabs, and with some wrong or unknown sizes.
func examples(t testing.TB) []byte {
	t.Helper()
	text, err := os.ReadFile("testdata/examples.soif")
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// objects yields the objects of a Reader.
func objects(in *Reader) iter.Seq2[*Object, error] {
	return func(yield func(*Object, error) bool) {
		for {
			o, err := in.Next()
			if err == io.EOF || !yield(o, err) || err != nil {
				return
			}
		}
	}
}

// The examples of the standard are read, even byte by byte, and written unchanged.
func TestExamples(t *testing.T) {
	text := examples(t)
	var written []byte
	types := map[string]int{}
	for o, err := range objects(NewReader(iotest.OneByteReader(bytes.NewReader(text)))) {
		if err != nil {
			t.Fatal(err)
		}
		types[o.Type]++
		if o.Type == "RDMSERVER" { // its values are objects, too
			for _, sample := range o.Values("RD-Sample") {
				inner, err := NewReader(strings.NewReader(sample)).Next()
				if err != nil || inner.URL != "http://www.netscape.com:80/" || !slices.Equal(inner.Values("title"), []string{"Welcome to Netscape!"}) {
					t.Errorf("Next() of a sample = %+v, %v, want Netscape's home page", inner, err)
				}
			}
		}
		written = o.Append(written)
	}
	if !bytes.Equal(written, text) {
		t.Errorf("Append(): got\n%s\nwant the examples", written)
	}
	want := map[string]int{"RDMHEADER": 9, "DOCUMENT": 1, "RDMQUERY": 11, "RDMSERVER": 1, "SCHEMA": 1, "TAXONOMY": 1, "CLASSIFICATION": 4}
	if !reflect.DeepEqual(types, want) {
		t.Errorf("got types %v, want %v", types, want)
	}
}

func TestReader(t *testing.T) {
	for text, want := range map[string]Object{
		"@A { -\n}\n":                        {"A", "-", nil},
		" \r\n@A{-}":                         {}, // words are separated by white space
		"@A{ - }":                            {},
		"@A	{ -}":                           {"A", "-", nil},
		"@A { http://a/{b}\nx{0}:\t\n}":      {"A", "http://a/{b}", []Attribute{{"x", ""}}},
		"@A { -\r\nx{2}:\t\xff\x00\r\n}\r\n": {"A", "-", []Attribute{{"x", "\xff\x00"}}},
		"@A { -\nx{9}:\t}\n@A { -\n\ny-1{1}: z\n}": {"A", "-", []Attribute{{"x", "}\n@A { -\n"}, {"y-1", "z"}}},
	} {
		o, err := NewReader(strings.NewReader(text)).Next()
		if want.Type == "" {
			if err == nil {
				t.Errorf("Next() of %q = %+v, want an error", text, o)
			}
			continue
		}
		if err != nil || !reflect.DeepEqual(*o, want) {
			t.Errorf("Next() of %q = %+v, %v, want %+v", text, o, err, want)
		}
	}
	o := Object{"A", "-", []Attribute{{"title-1", "a"}, {"Title-22", "b"}, {"title-x", "c"}, {"title", "d"}, {"title-", "e"}}}
	if got := o.Values("TITLE"); !slices.Equal(got, []string{"a", "b", "d"}) {
		t.Errorf("Values(TITLE) = %q, want a, b, d", got)
	}
}

// Invalid text is refused with the object, the attribute and the rule. The same error is returned
// again.
func TestReaderInvalid(t *testing.T) {
	fine := "@FINE { -\n}\n"
	for text, want := range map[string]string{
		"A":                                      `object 2 (@A ): unexpected "A"; want @, the type`,
		"@":                                      `object 2 (@ ): unexpected "@"; want @, the type`,
		"@{ -":                                   `unexpected "-"; want @, the type, {`,
		"@A -":                                   `object 2 (@A ): unexpected "-"; want @, the type`,
		"@A { }\n":                               "object 2 (@A }): missing URL",
		"@A { -\nTitle: x\n}":                    `object 2 (@A -): unexpected "Title:"; want a name, the size`,
		"@A { -\nTitle{}:\tx\n}":                 `unexpected "Title{}:"; want a name, the size`,
		"@A { -\nTitle{1}:x\n}":                  `unexpected "Title{1}:x"; want a name, the size of the value in braces, a colon and a tab`,
		"@A { -\nTitle{5}:\tx\n}":                "attribute Title: the body ends early",
		"@A { -\nTitle{1}:\txyz\n}":              "attribute Title: value does not end after 1 bytes: got 'y'",
		"@A { -\nTitle{1}:\tx\n":                 "object 2 (@A -): the body ends early",
		"@A { -\nTitle{1048577}:\t":              "attribute Title: object is too large; want at most 1048576 bytes",
		"@A { -\nTitle{99999999999}:\t":          "attribute Title: object is too large; want at most",
		"@A { -\nT\x00{1}:\tx":                   "unexpected \"T\uFFFD{1}:\"",
		strings.Repeat(" ", maxObject):           "object 2 (@ ): object is too large; want at most 1048576 bytes",
		"@A { " + strings.Repeat("a", maxObject): "object is too large; want at most 1048576 bytes",
		"@A { -\n" + strings.Repeat("a{0}:\t\n", maxObject/(7+attributeOverhead)+1): "object is too large; want at most",
		"@A { -\n" + strings.Repeat("a", maxObject):                                 "object is too large; want at most",
		"@A { -\na{1000000}:\t" + strings.Repeat("a", 1_000_000) + "\nb{50000}:\t":  "attribute b: object is too large; want at most",
	} {
		in := NewReader(strings.NewReader(fine + text))
		if o, err := in.Next(); err != nil || o.Type != "FINE" {
			t.Fatal(err)
		}
		_, err := in.Next()
		if invalid, ok := errors.AsType[*resourcesync.Error](err); !ok || !strings.Contains(invalid.Error(), want) {
			t.Errorf("Next() of %.30q = %v, want %s", text, err, want)
		}
		if _, again := in.Next(); again != err {
			t.Errorf("second Next() of %.30q = %v, want the same error", text, again)
		}
	}
	broken := errors.New("broken")
	if _, err := NewReader(iotest.ErrReader(broken)).Next(); !errors.Is(err, broken) || !strings.HasPrefix(err.Error(), "object 1 ") {
		t.Errorf("Next() with a broken reader = %v, want its error", err)
	}
}

// Written objects are read as the same objects.
func FuzzReader(f *testing.F) {
	f.Add(examples(f))
	f.Add([]byte("@A { - } @b { u x{2}:\t\xff\n\ny{0}:  }"))
	f.Fuzz(func(t *testing.T, text []byte) {
		var read []*Object
		var written []byte
		for o, err := range objects(NewReader(bytes.NewReader(text))) {
			if err != nil {
				break
			}
			read, written = append(read, o), o.Append(written)
		}
		i := 0
		for o, err := range objects(NewReader(bytes.NewReader(written))) {
			if err != nil || i == len(read) || !reflect.DeepEqual(o, read[i]) {
				t.Fatalf("object %d of %q: got %+v, %v, want the written one", i, written, o, err)
			}
			i++
		}
		if i != len(read) {
			t.Errorf("got %d of %d objects from %q", i, len(read), written)
		}
	})
}
