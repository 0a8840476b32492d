package soif

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
)

// readAll returns the objects of a stream.
func readAll(text string, l Limits) (all []*Object, err error) {
	r := NewReader(strings.NewReader(text), l)
	for {
		o, err := r.Read()
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		all = append(all, o)
	}
}

// What is written is read as it was, whatever bytes a value has.
func TestRoundTrip(t *testing.T) {
	var bytes256 []byte
	for i := range 256 {
		bytes256 = append(bytes256, byte(i))
	}
	all := []*Object{
		{Type: "DOCUMENT", URL: "http://www.netscape.com:80/", Attributes: []Attribute{{"Title", "Welcome to Netscape!"}, {"title-1", "a"}, {"title-2", "b\n}\n@X { -\n"}}},
		{Type: "RDMHEADER"},
		{Type: "D", URL: "urn:x:{}", Attributes: []Attribute{{"Empty", ""}, {"Bytes", string(bytes256)}, {"Long", strings.Repeat("}", 100_000)}}},
	}
	var text []byte
	for _, o := range all {
		var err error
		if text, err = o.Append(text); err != nil {
			t.Fatal(err)
		}
	}
	for _, from := range []io.Reader{bytes.NewReader(text), iotest.OneByteReader(bytes.NewReader(text))} {
		r := NewReader(from, Limits{})
		for i, want := range all {
			if o, err := r.Read(); err != nil || !reflect.DeepEqual(o, want) || r.Count() != i+1 {
				t.Errorf("object %d is %+v, %v", i, o, err)
			}
		}
		if o, err := r.Read(); err != io.EOF || r.Count() != len(all) {
			t.Errorf("behind the last object: %v, %v", o, err)
		}
	}
}

// What cannot be read back is not written.
func TestUnwritable(t *testing.T) {
	for _, o := range []*Object{
		{}, {Type: "A B"}, {Type: "A", URL: "-"}, {Type: "A", URL: "a b"}, {Type: "A", URL: strings.Repeat("u", maxURL+1)},
		{Type: "A", Attributes: []Attribute{{"", "x"}}}, {Type: "A", Attributes: []Attribute{{"a{1}", "x"}}},
	} {
		if text, err := o.Append(nil); err == nil {
			t.Errorf("%+v is written as %q", o, text)
		}
	}
}

// Forms that others write are read as well.
func TestForms(t *testing.T) {
	for _, text := range []string{
		"@D{ u\na{1}:\tx\n}", "\r\n @D { u\r\na{1}:\tx\r\n}\r\n", "@D { u a{1}: x}", "@D\n{\nu\na{1}:\tx\n\n}\n\n",
	} {
		all, err := readAll(text, Limits{})
		if want := []*Object{{Type: "D", URL: "u", Attributes: []Attribute{{"a", "x"}}}}; err != nil || !reflect.DeepEqual(all, want) {
			t.Errorf("%q is read as %+v, %v", text, all, err)
		}
	}
	if all, err := readAll(" \n", Limits{}); len(all) > 0 || err != nil {
		t.Errorf("space alone is read as %v, %v", all, err)
	}
	r := NewReader(strings.NewReader("@D { -\n}\n<HTML>"), Limits{})
	if _, err := r.Read(); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(r.Rest()); string(rest) != "\n<HTML>" || err != nil {
		t.Errorf("the rest is %q, %v", rest, err)
	}
}

// An error names the object, the attribute and the rule.
func TestErrors(t *testing.T) {
	const good = "@A { -\n}\n"
	for _, c := range []struct{ text, says string }{
		{"x", `object 1: an object begins with @, not with 'x'`},
		{good + "@", `object 2: the object ends early`},
		{good + "@ {", `object 2: a type follows the @`},
		{good + "@B u", `object 2 (@B): { follows the type, not 'u'`},
		{"@B { u", `object 1 (@B): the object ends early`},
		{"@B { a\x01b\n}", `object 1 (@B): the URL is not good`},
		{"@B { u\n", `object 1 (@B u): the object ends early`},
		{"@B { u\n!", `object 1 (@B u): an attribute or } is expected, not '!'`},
		{"@B { u\nTitle\n", `object 1 (@B u), attribute Title: {, the size`},
		{"@B { u\nTitle{}:\tx\n}", `attribute Title: the size of the value is a number`},
		{"@B { u\nTitle{x}:\tx\n}", `attribute Title: the size of the value is a number`},
		{"@B { u\nTitle{-1}:\tx\n}", `attribute Title: the size of the value is a number`},
		{"@B { u\nTitle{99999999999}:\tx\n}", `attribute Title: the size of the value is a number`},
		{"@B { u\nTitle{1}x", `attribute Title: a colon and a tab stand before the value`},
		{"@B { u\nTitle{1}:x", `attribute Title: a colon and a tab stand before the value`},
		{"@B { u\nTitle{1}:\txy\n}", `attribute Title: the value has 1 bytes as it says, and 'y' follows it`},
		{"@B { u\nTitle{9}:\tx\n}", `attribute Title: the value says that it has 9 bytes, and ends after 3`},
	} {
		_, err := readAll(c.text, Limits{})
		if e := new(Error); err == nil || !strings.Contains(err.Error(), c.says) || !errors.As(err, &e) || e.TooLarge {
			t.Errorf("%q: %v, want %q", c.text, err, c.says)
		}
	}
	broken := errors.New("broken")
	r := NewReader(io.MultiReader(strings.NewReader("@B { u\n"), iotest.ErrReader(broken)), Limits{})
	for range 2 {
		if _, err := r.Read(); !errors.Is(err, broken) {
			t.Errorf("a stream that breaks is %v", err)
		}
	}
}

func TestLimits(t *testing.T) {
	for _, c := range []struct {
		text string
		l    Limits
	}{
		{"@B { u\na{100}:\t", Limits{Bytes: 50}},
		{"@B { u\na{100}:\t" + strings.Repeat("x", 100) + "\n}", Limits{Bytes: 100}},
		{strings.Repeat(" ", 100) + "@B { u\n}", Limits{Bytes: 100}},
		{"@B { u\na{0}:\t\nb{0}:\t\n}", Limits{Attributes: 1}},
		{"@B { u\n}@B { u\n}", Limits{Objects: 1}},
	} {
		_, err := readAll(c.text, c.l)
		if e := new(Error); !errors.As(err, &e) || !e.TooLarge {
			t.Errorf("%.40q: %v", c.text, err)
		}
	}
	if _, err := readAll("@"+strings.Repeat("B", 300)+" { u\n}", Limits{}); err == nil {
		t.Error("a type of 300 letters is read")
	}
}

func TestSplit(t *testing.T) {
	for name, want := range map[string]struct {
		base string
		n    int
	}{
		"title": {"title", 0}, "title-1": {"title", 1}, "RD-Sample-12": {"RD-Sample", 12}, "-1": {"-1", 0}, "a-": {"a-", 0},
		"a-0": {"a-0", 0}, "a-01": {"a-01", 0}, "a-b": {"a-b", 0}, "a-99999999999999999999": {"a-99999999999999999999", 0},
	} {
		if base, n := Split(name); base != want.base || n != want.n {
			t.Errorf("%s is %s and %d", name, base, n)
		}
	}
}

// Whatever is read is written so that it is read as the same.
func FuzzRead(f *testing.F) {
	f.Add([]byte("@RDMHEADER { -\nRDM-Version{3}:\t1.0\nRDM-Type{14}:\tstatus-request\n}\n"))
	f.Add([]byte("@DOCUMENT { http://www.netscape.com:80/\nTitle{20}:\tWelcome to Netscape!\n}\n@D { u a{1}: x}"))
	f.Add([]byte("@B { u\nTitle{9}:\tx\n}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		r := NewReader(bytes.NewReader(text), Limits{Bytes: 10_000})
		for {
			o, err := r.Read()
			if err != nil {
				if e := new(Error); err != io.EOF && (!errors.As(err, &e) || e.Rule == "" || e.Object == 0) {
					t.Fatalf("the error is %v", err)
				}
				return
			}
			written, err := o.Append(nil)
			if err != nil {
				t.Fatalf("%+v was read, and is not written: %v", o, err)
			}
			again, err := readAll(string(written), Limits{Bytes: 100_000})
			if err != nil || len(again) != 1 || !reflect.DeepEqual(again[0], o) {
				t.Fatalf("%+v is read back as %+v, %v", o, again, err)
			}
		}
	})
}

// Whatever can be written is read back as it was.
func FuzzWrite(f *testing.F) {
	f.Add("DOCUMENT", "http://x/", "Title", []byte("a"), "title-1", []byte("}\n"))
	f.Fuzz(func(t *testing.T, kind, url, name string, value []byte, name2 string, value2 []byte) {
		o := &Object{Type: kind, URL: url, Attributes: []Attribute{{name, string(value)}, {name2, string(value2)}}}
		text, err := o.Append(nil)
		if err != nil {
			return
		}
		again, err := readAll(string(text), Limits{Bytes: len(text)})
		if err != nil || len(again) != 1 || !reflect.DeepEqual(again[0], o) {
			t.Fatalf("%+v is read back as %+v, %v", o, again, err)
		}
	})
}
