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

// examples has those of the standard, as they are sent: it prints them without ends of lines and
// tabs, and with sizes of which some are wrong or an x.
func examples(t testing.TB) []byte {
	t.Helper()
	text, err := os.ReadFile("testdata/examples.soif")
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// objects yields what a Reader reads, up to its end.
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

// The examples of the standard are read, byte by byte, and written as they were.
func TestExamples(t *testing.T) {
	text := examples(t)
	var written []byte
	types := map[string]int{}
	for o, err := range objects(NewReader(iotest.OneByteReader(bytes.NewReader(text)))) {
		if err != nil {
			t.Fatal(err)
		}
		types[o.Type]++
		if o.Type == "RDMSERVER" { // its values are objects themselves
			for _, sample := range o.Values("RD-Sample") {
				inner, err := NewReader(strings.NewReader(sample)).Next()
				if err != nil || inner.URL != "http://www.netscape.com:80/" || !slices.Equal(inner.Values("title"), []string{"Welcome to Netscape!"}) {
					t.Errorf("a sample is %+v, %v", inner, err)
				}
			}
		}
		written = o.Append(written)
	}
	if !bytes.Equal(written, text) {
		t.Errorf("the examples are written as\n%s", written)
	}
	want := map[string]int{"RDMHEADER": 9, "DOCUMENT": 1, "RDMQUERY": 11, "RDMSERVER": 1, "SCHEMA": 1, "TAXONOMY": 1, "CLASSIFICATION": 4}
	if !reflect.DeepEqual(types, want) {
		t.Errorf("the examples have %v, want %v", types, want)
	}
}

func TestReader(t *testing.T) {
	for text, want := range map[string]Object{
		"@A { -\n}\n":                        {"A", "-", nil},
		" \r\n@A{-}":                         {}, // white space stands between words
		"@A{ - }":                            {},
		"@A	{ -}":                           {"A", "-", nil},
		"@A { http://a/{b}\nx{0}:\t\n}":      {"A", "http://a/{b}", []Attribute{{"x", ""}}},
		"@A { -\r\nx{2}:\t\xff\x00\r\n}\r\n": {"A", "-", []Attribute{{"x", "\xff\x00"}}},
		"@A { -\nx{9}:\t}\n@A { -\n\ny-1{1}: z\n}": {"A", "-", []Attribute{{"x", "}\n@A { -\n"}, {"y-1", "z"}}},
	} {
		o, err := NewReader(strings.NewReader(text)).Next()
		if want.Type == "" {
			if err == nil {
				t.Errorf("%q is read as %+v", text, o)
			}
			continue
		}
		if err != nil || !reflect.DeepEqual(*o, want) {
			t.Errorf("%q: %+v, %v", text, o, err)
		}
	}
	o := Object{"A", "-", []Attribute{{"title-1", "a"}, {"Title-22", "b"}, {"title-x", "c"}, {"title", "d"}, {"title-", "e"}}}
	if got := o.Values("TITLE"); !slices.Equal(got, []string{"a", "b", "d"}) {
		t.Errorf("the titles are %q", got)
	}
}

// What is wrong is refused, and the error names the object, the attribute and the rule. The same
// error comes again.
func TestReaderRefuses(t *testing.T) {
	fine := "@FINE { -\n}\n"
	for text, want := range map[string]string{
		"A":                                      `object 2 (@A ): "A" is not expected here: an object begins with @`,
		"@":                                      `object 2 (@ ): "@" is not expected here: an object begins with @`,
		"@{ -":                                   `"-" is not expected here: an object begins with @, its type, {`,
		"@A -":                                   `object 2 (@A ): "-" is not expected here: an object begins with @`,
		"@A { }\n":                               "object 2 (@A }): it has no URL",
		"@A { -\nTitle: x\n}":                    `object 2 (@A -): "Title:" is not expected here: a name is followed by the size`,
		"@A { -\nTitle{}:\tx\n}":                 `"Title{}:" is not expected here: a name is followed by the size`,
		"@A { -\nTitle{1}:x\n}":                  `"Title{1}:x" is not expected here: a name is followed by the size of the value in braces, a colon and a tab`,
		"@A { -\nTitle{5}:\tx\n}":                "attribute Title: the body ends early",
		"@A { -\nTitle{1}:\txyz\n}":              "attribute Title: its value does not end after 1 bytes, where 'y' follows",
		"@A { -\nTitle{1}:\tx\n":                 "object 2 (@A -): the body ends early",
		"@A { -\nTitle{1048577}:\t":              "attribute Title: an object has at most 1048576 bytes",
		"@A { -\nTitle{99999999999}:\t":          "attribute Title: an object has at most",
		"@A { -\nT\x00{1}:\tx":                   "\"T\uFFFD{1}:\" is not expected here",
		strings.Repeat(" ", maxObject):           "object 2 (@ ): an object has at most 1048576 bytes",
		"@A { " + strings.Repeat("a", maxObject): "an object has at most 1048576 bytes",
		"@A { -\n" + strings.Repeat("a{0}:\t\n", maxObject/(7+attributeRoom)+1):    "an object has at most",
		"@A { -\n" + strings.Repeat("a", maxObject):                                "an object has at most",
		"@A { -\na{1000000}:\t" + strings.Repeat("a", 1_000_000) + "\nb{50000}:\t": "attribute b: an object has at most",
	} {
		in := NewReader(strings.NewReader(fine + text))
		if o, err := in.Next(); err != nil || o.Type != "FINE" {
			t.Fatal(err)
		}
		_, err := in.Next()
		if wrong, ok := errors.AsType[*resourcesync.Error](err); !ok || !strings.Contains(wrong.Error(), want) {
			t.Errorf("%.30q: %v, want %s", text, err, want)
		}
		if _, again := in.Next(); again != err {
			t.Errorf("%.30q: the second error is %v", text, again)
		}
	}
	broken := errors.New("broken")
	if _, err := NewReader(iotest.ErrReader(broken)).Next(); !errors.Is(err, broken) || !strings.HasPrefix(err.Error(), "object 1 ") {
		t.Errorf("an error of the reader is %v", err)
	}
}

// What was read is written so that it is read as the same again.
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
				t.Fatalf("object %d of %q is read as %+v, %v", i, written, o, err)
			}
			i++
		}
		if i != len(read) {
			t.Errorf("%d of %d objects are read of %q", i, len(read), written)
		}
	})
}
