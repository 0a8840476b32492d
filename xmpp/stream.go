package xmpp

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
)

// The namespaces of what is read and written.
const (
	nsStreams    = "http://etherx.jabber.org/streams"
	nsComponent  = "jabber:component:accept"
	nsStanzas    = "urn:ietf:params:xml:ns:xmpp-stanzas"
	nsStreamErrs = "urn:ietf:params:xml:ns:xmpp-streams"
	nsPubsub     = "http://jabber.org/protocol/pubsub"
	nsPubsubErrs = "http://jabber.org/protocol/pubsub#errors"
)

// Bounds of what a server sends.
const (
	maxDepth = 64
	maxText  = 1_000 // bytes of the text of an error
	maxName  = 64    // bytes of the name of a condition
)

// errClosed means that the server has closed the stream.
var errClosed = errors.New("the XMPP server has closed the connection")

// A stanza is what is kept of an element that a server sends. All else in it is read and
// dropped.
type stanza struct {
	name           xml.Name
	id, kind, from string   // the attributes id, type and from
	failure        *Failure // of an iq of the type error, and of a stream error
}

// A stream reads what a server sends. It takes no document type, no comment and no processing
// instruction, as RFC 6120 section 11.1 has it. It holds one stanza in memory at most.
type stream struct {
	bound *bound
	dec   *xml.Decoder
}

// newStream returns a stream of stanzas of at most so many bytes.
func newStream(r io.Reader, most int) *stream {
	b := &bound{r: r, most: most}
	return &stream{bound: b, dec: xml.NewDecoder(b)}
}

// A bound is a reader of at most so many bytes for each stanza. The bytes that the decoder
// reads ahead count for the stanza before.
type bound struct {
	r          io.Reader
	most, left int
	ended      bool // r has
}

func (b *bound) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("the XMPP server sends more than %d bytes at once", b.most)
	}
	n, err := b.r.Read(p[:min(len(p), b.left)])
	b.left -= n
	b.ended = b.ended || errors.Is(err, io.EOF)
	return n, err
}

// token returns the next token that is an element or text.
func (s *stream) token() (xml.Token, error) {
	t, err := s.dec.Token()
	if err != nil {
		return nil, s.broken(err)
	}
	switch t.(type) {
	case xml.Directive, xml.Comment, xml.ProcInst:
		return nil, fmt.Errorf("read from the XMPP server: it sends a %T, which XMPP does not allow", t)
	}
	return t, nil
}

// broken returns what an error of the decoder means.
func (s *stream) broken(err error) error {
	if s.bound.ended { // for the decoder that is a mistake in what the server sends
		return errClosed
	}
	return fmt.Errorf("read from the XMPP server: %w", err)
}

// open reads the beginning of the stream, and returns its id.
func (s *stream) open() (id string, err error) {
	s.bound.left = s.bound.most
	t, err := s.dec.Token()
	if p, ok := t.(xml.ProcInst); err == nil && ok && p.Target == "xml" {
		t, err = s.dec.Token()
	}
	for blank(t) && err == nil {
		t, err = s.dec.Token()
	}
	if err != nil {
		return "", s.broken(err)
	}
	begin, ok := t.(xml.StartElement)
	if !ok || begin.Name != (xml.Name{Space: nsStreams, Local: "stream"}) {
		return "", errors.New("what listens there does not begin an XMPP stream")
	}
	return attr(begin, "id"), nil
}

// next reads the next stanza.
func (s *stream) next() (*stanza, error) {
	s.bound.left = s.bound.most
	for {
		t, err := s.token()
		if err != nil {
			return nil, err
		}
		switch t := t.(type) {
		case xml.StartElement:
			return s.stanza(t)
		case xml.EndElement:
			return nil, errClosed
		default:
			if !blank(t) {
				return nil, errors.New("the XMPP server sends text between stanzas")
			}
		}
	}
}

// stanza reads the rest of a stanza.
func (s *stream) stanza(begin xml.StartElement) (*stanza, error) {
	st := &stanza{name: begin.Name, id: attr(begin, "id"), kind: attr(begin, "type"), from: attr(begin, "from")}
	streamError := begin.Name == xml.Name{Space: nsStreams, Local: "error"}
	if streamError {
		st.failure = &Failure{Stream: true, Condition: "undefined-condition"}
	}
	inError, inText := streamError, false
	for depth := 1; depth > 0; {
		t, err := s.token()
		if err != nil {
			return nil, err
		}
		switch t := t.(type) {
		case xml.StartElement:
			depth++
			if depth > maxDepth {
				return nil, fmt.Errorf("the XMPP server sends elements inside each other, more than %d deep", maxDepth)
			}
			switch {
			case depth == 2 && t.Name.Local == "error" && st.kind == "error":
				inError = true
				st.failure = &Failure{Condition: "undefined-condition"}
			case inError && (depth == 3 && !streamError || depth == 2 && streamError):
				inText = st.failure.learn(t.Name)
			}
		case xml.EndElement:
			depth--
			inText = false
			if depth == 1 {
				inError = streamError
			}
		case xml.CharData:
			if inText && len(st.failure.Text)+len(t) <= maxText {
				st.failure.Text += strings.TrimSpace(string(t))
			}
		}
	}
	return st, nil
}

// learn learns from an element of an error what failed. It reports whether the content of the
// element is text for people.
func (f *Failure) learn(name xml.Name) (text bool) {
	switch {
	case len(name.Local) > maxName:
	case name.Space == nsPubsubErrs:
		f.Specific = name.Local
	case name.Space != nsStanzas && name.Space != nsStreamErrs:
	case name.Local == "text":
		return true
	default:
		f.Condition = name.Local
	}
	return false
}

// attr returns an attribute without a namespace.
func attr(e xml.StartElement, name string) string {
	for _, a := range e.Attr {
		if a.Name.Space == "" && a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

// blank reports whether a token is nothing but white space.
func blank(t xml.Token) bool {
	text, ok := t.(xml.CharData)
	return ok && strings.TrimSpace(string(text)) == ""
}
