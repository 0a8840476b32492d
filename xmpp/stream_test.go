package xmpp

import (
	"encoding/xml"
	"strings"
	"testing"
)

const opening = "<?xml version='1.0'?>\n<stream:stream xmlns='jabber:component:accept' xmlns:stream='http://etherx.jabber.org/streams' id='a' from='b'>"

func TestStream(t *testing.T) {
	stanzas := "xmlns='" + nsStanzas + "'"
	for _, test := range []struct{ name, text, want, fails string }{
		{"result", " <iq type='result' id='1' from='p'><pubsub xmlns='x'><publish/></pubsub></iq>", "", ""},
		{"error", "<iq type='error' id='1' from='p'><pubsub xmlns='x'><error><text>no</text></error></pubsub><error type='auth'><forbidden " + stanzas + "/><text " + stanzas + "> a &lt; b </text></error></iq>", "the pubsub service answers forbidden: a < b; let the component create nodes there, and publish to them", ""},
		{"specific", "<iq type='error' id='1' from='p'><error><not-acceptable " + stanzas + "/><payload-too-big xmlns='" + nsPubsubErrs + "'/></error></iq>", "the pubsub service answers not-acceptable (payload-too-big)", ""},
		{"error without a condition", "<iq type='error' id='1' from='p'><error/></iq>", "the pubsub service answers undefined-condition", ""},
		{"error only inside", "<iq type='result' id='1' from='p'><error><forbidden " + stanzas + "/></error></iq>", "", ""},
		{"stream error", "<stream:error><conflict xmlns='" + nsStreamErrs + "'/></stream:error>", "the XMPP server ended the connection: conflict", ""},
		{"end", "</stream:stream>", "", errClosed.Error()},
		{"cut off", "<iq type='result'", "", errClosed.Error()},
		{"document type", "<!DOCTYPE iq>", "", "xml.Directive"},
		{"inside", "<iq><!DOCTYPE iq></iq>", "", "xml.Directive"},
		{"comment", "<iq><!-- a --></iq>", "", "xml.Comment"},
		{"instruction", "<?a b?><iq/>", "", "xml.ProcInst"},
		{"entity", "<iq>&a;</iq>", "", "invalid character entity"},
		{"text", "hello<iq/>", "", "text between stanzas"},
		{"deep", strings.Repeat("<a>", 70), "", "deep"},
		{"large", "<iq id='" + strings.Repeat("a", 20_000) + "'/>", "", "more than 10000 bytes"},
		{"large text", "<iq>" + strings.Repeat("a", 20_000) + "</iq>", "", "more than 10000 bytes"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newStream(strings.NewReader(opening+test.text), 10_000)
			if id, err := s.open(); id != "a" || err != nil {
				t.Fatal(id, err)
			}
			st, err := s.next()
			if test.fails != "" {
				if err == nil || !strings.Contains(err.Error(), test.fails) {
					t.Errorf("it is %+v, %v", st, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if st.failure == nil && test.want != "" || st.failure != nil && st.failure.Error() != test.want {
				t.Errorf("it is %v, want %s", st.failure, test.want)
			}
		})
	}
	for _, text := range []string{"", "HTTP/1.1 400 Bad Request\r\n", "<html>", "<stream xmlns='jabber:client'>", "<!DOCTYPE a><stream:stream>"} {
		if id, err := newStream(strings.NewReader(text), 10_000).open(); err == nil {
			t.Errorf("%q begins a stream with the id %q", text, id)
		}
	}
}

// FuzzStream reads what a hostile server sends. It ends, and keeps little.
func FuzzStream(f *testing.F) {
	for _, text := range []string{
		"<iq type='result' id='1' from='p'/>", "</stream:stream>", "<!DOCTYPE a>", "<iq type='error'><error><forbidden xmlns='" + nsStanzas + "'/><text xmlns='" + nsStanzas + "'>a</text></error></iq>",
		"<stream:error><conflict xmlns='" + nsStreamErrs + "'/></stream:error>", " \n <a><b c='d'>&lt;</b></a>", "<![CDATA[a]]>",
	} {
		f.Add(opening + text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		const most = 4_000
		s := newStream(strings.NewReader(text), most)
		if _, err := s.open(); err != nil {
			return
		}
		for range len(text) {
			st, err := s.next()
			if err != nil {
				return
			}
			if len(st.id) > most || len(st.from) > most || st.failure != nil && (len(st.failure.Text) > maxText || len(st.failure.Condition) > maxName || len(st.failure.Specific) > maxName) {
				t.Fatalf("it keeps %+v", st)
			}
		}
		if _, err := s.next(); err == nil {
			t.Fatal("there are more stanzas than bytes")
		}
	})
}

// FuzzAttr writes any text so that another reader of XML reads the same.
func FuzzAttr(f *testing.F) {
	for _, text := range []string{"demo", "https://hub.example.org/sets/a/changes", "<&>\"'", "a\tb\nc\r", "\x00\xff\uFFFE", "é🙂"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var iq struct {
			Publish struct {
				Node string `xml:"node,attr"`
				Item struct {
					ID string `xml:"id,attr"`
				} `xml:"item"`
			} `xml:"pubsub>publish"`
		}
		b := frame(&account, "1", publication(text, "2", nil))
		if err := xml.Unmarshal(b, &iq); err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		want := strings.Map(func(r rune) rune {
			if r < 0x20 && r != '\t' && r != '\n' && r != '\r' || r == 0xFFFE || r == 0xFFFF {
				return 0xFFFD
			}
			return r
		}, text)
		if iq.Publish.Node != want || iq.Publish.Item.ID != "2" {
			t.Errorf("%q is read as %q", text, iq.Publish.Node)
		}
	})
}
