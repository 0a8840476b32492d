package xmlrepair

import (
	"bufio"
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestReader(t *testing.T) {
	entities := map[string]string{"nbsp": "\u00a0"}
	for _, tt := range []struct{ name, in, want string }{
		{"well-formed", `<a b="1>2 ]]>'">t &amp; &#65;&#x1F600; ] ]] > é<!-- - x --><![CDATA[ & < &nbsp; ]] ]]><?p & ?></a>`, `<a b="1>2 ]]>'">t &amp; &#65;&#x1F600; ] ]] > é<!-- - x --><![CDATA[ & < &nbsp; ]] ]]><?p & ?></a>`},
		{"bare ampersand", "<a>?b=1&c=2</a>", "<a>?b=1◊c=2</a>"},
		{"ampersand and distant semicolon", "<a>?b&c=d;e</a>", "<a>?b◊c=d;e</a>"},
		{"ampersand at the end", "<a>&", "<a>◊"},
		{"ampersand in a value", "<a b='?c&d'/>", "<a b='?c◊d'/>"},
		{"undefined entity", "<a>x&eacute;y&;&#;</a>", "<a>x◊y◊;◊</a>"},
		{"entity of the caller", "<a>x&nbsp;y</a>", "<a>x&nbsp;y</a>"},
		{"surrogates", "<a>&#55356;&#57118;&#xD83C;</a>", "<a>◊◊◊</a>"},
		{"reference out of range", "<a>&#x110000;&#99999999999999;&#xFFFF;&#3;&#X41;&#-1;</a>", "<a>◊◊◊◊◊◊#-1;</a>"},
		{"control characters", "<a>x\x03\x00y\x1f\n\t\x7f</a>", "<a>x◊◊y◊\n\t\x7f</a>"},
		{"noncharacters", "<a>\uFFFE\uFFFF</a>", "<a>◊◊</a>"},
		{"bytes that are not UTF-8", "<a>it\x92s \xff\xc3</a>", "<a>it◊s ◊◊</a>"},
		{"encoded surrogate", "<a>\xed\xa0\x80</a>", "<a>◊◊◊</a>"},
		{"end of CDATA in text", "<a>x ]]> y ]]]></a>", "<a>x ◊ y ]◊</a>"},
		{"markup in text", "<a>1 < 2 <3 <</a>", "<a>1 ◊ 2 ◊3 ◊</a>"},
		{"markup in a value", "<a b='<c>'>&</a>", "<a b='<c>'>◊</a>"},
		{"comment", "<!-- a -- b \xff & --- --->&", "<!-- a -- b ◊ & --- --->◊"},
		{"CDATA", "<![CDATA[\x01&\xff]]>&", "<![CDATA[◊&◊]]>◊"},
		{"instruction", "<?x \x01&?>&", "<?x ◊&?>◊"},
		{"document type", `<!DOCTYPE a SYSTEM "b&c">&`, `<!DOCTYPE a SYSTEM "b&c">◊`},
		{"nothing", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, in := range []io.Reader{strings.NewReader(tt.in), iotest.OneByteReader(strings.NewReader(tt.in))} {
				got, err := io.ReadAll(NewReader(bufio.NewReader(in), entities))
				if got := strings.ReplaceAll(string(got), string(Damage), "◊"); got != tt.want || err != nil {
					t.Errorf("ReadAll(%q) = %q, %v, want %q", tt.in, got, err, tt.want)
				}
			}
		})
	}
}

// An error of the underlying reader is returned after all bytes before it, although Peek of
// bufio.Reader forgets it.
func TestReaderError(t *testing.T) {
	lost := errors.New("connection lost")
	for _, in := range []string{"", "<a>", "<a>&", "<a>]", "<a", "<", "<a>\xc3"} {
		once := iotest.DataErrReader(io.MultiReader(strings.NewReader(in), iotest.ErrReader(lost)))
		got, err := io.ReadAll(NewReader(bufio.NewReader(once), nil))
		if err != lost || len(got) < len(in) {
			t.Errorf("ReadAll(%q) = %q, %v, want %v", in, got, err, lost)
		}
	}
}

// Whatever text is between two elements, encoding/xml can read the elements after it, and
// well-formed text does not change.
func FuzzReader(f *testing.F) {
	for _, seed := range []string{"a", "&", "]]>", "&#3;", "\xff", "< 1", "&nbsp;&amp;"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if strings.ContainsAny(text, "<") {
			return // it may be markup
		}
		doc := "<a><b c='" + strings.ReplaceAll(text, "'", "") + "'>" + text + "</b><!--" + strings.ReplaceAll(text, "-", "") + "x--><d/></a>"
		texts := func(r io.Reader) (all []string, err error) {
			for dec := xml.NewDecoder(r); ; {
				tok, err := dec.Token()
				if err != nil {
					return all, err
				}
				switch tok := tok.(type) {
				case xml.StartElement:
					for _, a := range tok.Attr {
						all = append(all, a.Value)
					}
					all = append(all, tok.Name.Local)
				case xml.CharData:
					all = append(all, string(tok))
				}
			}
		}
		got, err := texts(NewReader(bufio.NewReader(strings.NewReader(doc)), nil))
		if err != io.EOF || got[len(got)-1] != "d" {
			t.Errorf("repaired %q: got %q, %v", doc, got, err)
		}
		repaired, _ := io.ReadAll(NewReader(bufio.NewReader(strings.NewReader(doc)), nil))
		if again, _ := io.ReadAll(NewReader(bufio.NewReader(bytes.NewReader(repaired)), nil)); !bytes.Equal(again, repaired) {
			t.Errorf("repaired again: %q, want %q", again, repaired)
		}
		if want, err := texts(strings.NewReader(doc)); err == io.EOF && strings.Join(got, "|") != strings.Join(want, "|") && !strings.ContainsAny(text, "\ufffd&") {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

func BenchmarkReader(b *testing.B) {
	doc := strings.Repeat("<url><loc>https://example.org/records/1234?format=xml&amp;lang=en</loc><lastmod>2026-01-01</lastmod></url>\n", 1000)
	for b.Loop() {
		_, _ = io.Copy(io.Discard, NewReader(bufio.NewReaderSize(strings.NewReader(doc), 32<<10), nil))
		b.SetBytes(int64(len(doc)))
	}
}
