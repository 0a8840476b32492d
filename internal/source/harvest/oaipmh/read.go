package oaipmh

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/xml"
	"errors"
	"fmt"
	"hash"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rshub/rshub/internal/source/harvest"
	"github.com/rshub/rshub/internal/xmlrepair"
	"github.com/rshub/rshub/resourcesync"
)

const (
	maxPart    = 64 << 20
	maxDepth   = 200
	maxRecords = 100_000
	maxText    = 64 << 10 // bytes of one text
	maxURLs    = 20       // maximum number of URLs of a record
	maxSets    = 20       // maximum number of sets of a record
)

// A Record is a record of a repository.
type Record struct {
	Identifier string
	Datestamp  string
	Time       time.Time // the datestamp as a time; zero if unreadable
	Deleted    bool
	Sets       []string // the values of setSpec, at most maxSets
	URLs       []string // URLs that the metadata gives as an identifier, such as dc:identifier
	Print      [8]byte  // hash of the metadata; only in lists of records
	Damaged    bool     // whether the metadata has text that is not well-formed XML, which is left out

	bad   string // why the record cannot be used; empty if it can
	text  []byte // unchanged text of the whole record; nil if not retained
	frame *frame // start tags around the text
}

// A part is the content of one response.
type part struct {
	responseDate time.Time // zero if unreadable
	err          *Error
	identity     *Identity
	list         bool // whether it has a list, which may be empty
	records      []Record
	hasToken     bool
	token        string
	size         int // completeListSize; zero if unknown

	frame frame // around the records, if their text is retained
}

// readPart reads a response to its end. Text that is not well-formed damages only its record. An
// error is a *resourcesync.Error, or the error of r. If whole is true, it retains the text of each
// record.
func readPart(r io.Reader, whole bool) (*part, error) {
	source := &partSource{r: r, left: maxPart}
	utf8, err := harvest.DecodeXML(source)
	if err != nil {
		return nil, err
	}
	repaired := xmlrepair.NewReader(utf8, xml.HTMLEntity)
	in := &partReader{part: &part{}}
	if in.dec = xml.NewDecoder(repaired); whole {
		in.tape = &recorder{Reader: bufio.NewReader(repaired)}
		in.dec = xml.NewDecoder(in.tape)
	}
	in.dec.Entity = xml.HTMLEntity
	in.dec.CharsetReader = func(_ string, r io.Reader) (io.Reader, error) { return r, nil }
	err = in.document()
	if own, ok := errors.AsType[*resourcesync.Error](err); ok {
		own.Line, _ = in.dec.InputPos()
		return nil, own
	}
	if syntax, ok := errors.AsType[*xml.SyntaxError](err); ok {
		if syntax.Msg == "unexpected EOF" {
			return nil, &resourcesync.Error{Err: resourcesync.ErrInvalid, Line: syntax.Line, Msg: "unexpected end of the response"}
		}
		return nil, &resourcesync.Error{Err: resourcesync.ErrInvalid, Line: syntax.Line, Msg: "not well-formed XML: " + resourcesync.Shorten(syntax.Msg)}
	}
	if err != nil && source.err == nil { // such as an unknown version of XML
		return nil, resourcesync.Invalidf("not well-formed XML: %s", resourcesync.Shorten(err.Error()))
	}
	if err != nil {
		return nil, err
	}
	return in.part, nil
}

// A partSource limits the bytes of a response, and remembers why it ended early.
type partSource struct {
	r    io.Reader
	left int   // bytes that may still follow
	err  error // nil if it did not end early
}

// Read reads the response.
func (s *partSource) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if s.left -= n; s.left < 0 {
		n, err = 0, &resourcesync.Error{Err: resourcesync.ErrTooLarge, Msg: fmt.Sprintf("response exceeds %d bytes, uncompressed", maxPart)}
	}
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

// A partReader reads a response. It recognizes elements by their local names, because repositories
// declare the namespace in many ways.
type partReader struct {
	*part
	dec        *xml.Decoder
	depth      int
	rooted     bool      // whether the root has started
	tape       *recorder // nil if no text is retained
	tokenStart int64     // offset of the last token
}

// next returns the next start element within the current one; nil at its end.
func (in *partReader) next() (*xml.StartElement, error) {
	for {
		tok, err := in.step()
		if err != nil {
			return nil, err
		}
		switch tok := tok.(type) {
		case xml.StartElement:
			return &tok, nil
		case xml.EndElement:
			return nil, nil
		}
	}
}

// step returns the next token. It limits the depth of elements.
func (in *partReader) step() (xml.Token, error) {
	in.tokenStart = in.dec.InputOffset()
	tok, err := in.dec.Token()
	switch tok := tok.(type) {
	case xml.StartElement:
		in.rooted = true
		if in.depth++; in.depth > maxDepth {
			return nil, resourcesync.Invalidf("elements are nested more than %d levels deep", maxDepth)
		}
	case xml.EndElement:
		in.depth--
	case xml.Directive:
		if rule := xmlrepair.DeclarationRule(tok, !in.rooted); rule != "" {
			return nil, resourcesync.Invalidf("%s", rule)
		}
	}
	if err == io.EOF && in.depth > 0 {
		err = resourcesync.Invalidf("unexpected end of the response")
	}
	return tok, err
}

// skip reads up to the end of the current element.
func (in *partReader) skip() error {
	for end := in.depth - 1; in.depth > end; {
		if _, err := in.step(); err != nil {
			return err
		}
	}
	return nil
}

// text returns the text of the current element, trimmed.
func (in *partReader) text() (string, error) {
	var b strings.Builder
	for end := in.depth - 1; in.depth > end; {
		tok, err := in.step()
		if err != nil {
			return "", err
		}
		if c, ok := tok.(xml.CharData); ok {
			if b.Len()+len(c) > maxText {
				return "", resourcesync.Invalidf("a text has more than %d bytes", maxText)
			}
			b.Write(c)
		}
	}
	return strings.TrimSpace(b.String()), nil
}

// each calls f with each child of the current element. f must read the child to its end.
func (in *partReader) each(f func(el *xml.StartElement) error) error {
	for {
		el, err := in.next()
		if err != nil || el == nil {
			return err
		}
		if err := f(el); err != nil {
			return err
		}
	}
}

func (in *partReader) document() error {
	root, err := in.next()
	if err == io.EOF {
		return resourcesync.Invalidf("empty response")
	}
	if err != nil {
		return err
	}
	if root.Name.Local != "OAI-PMH" {
		return resourcesync.Invalidf("not an OAI-PMH response: got root element %s", resourcesync.Shorten(root.Name.Local))
	}
	in.frame.root = string(in.tape.cut(in.tokenStart, in.dec.InputOffset()))
	if err := in.each(in.readTop); err != nil {
		return err
	}
	for {
		tok, err := in.step()
		if err == io.EOF {
			return nil
		}
		if _, more := tok.(xml.StartElement); more && err == nil {
			err = resourcesync.Invalidf("element after the root element")
		}
		if err != nil {
			return err
		}
	}
}

func (in *partReader) readTop(el *xml.StartElement) error {
	switch el.Name.Local {
	case "responseDate":
		s, err := in.text()
		in.responseDate = readTime(s)
		return err
	case "error":
		e := &Error{}
		for _, a := range el.Attr {
			if a.Name.Local == "code" {
				e.Code = strings.TrimSpace(a.Value)
			}
		}
		var err error
		e.Text, err = in.text()
		if in.err == nil {
			in.err = e
		}
		return err
	case "Identify":
		return in.identify()
	case "ListIdentifiers", "ListRecords":
		in.frame.list = string(in.tape.cut(in.tokenStart, in.dec.InputOffset()))
		in.list = true
		return in.each(in.readItem)
	}
	return in.skip()
}

func (in *partReader) identify() error {
	id := &Identity{Deleted: DeletedNo}
	in.identity = id
	return in.each(func(el *xml.StartElement) error {
		if el.Name.Local == "description" {
			return in.skip() // it may have elements of any name
		}
		s, err := in.text()
		switch el.Name.Local {
		case "repositoryName":
			id.Name = s
		case "baseURL":
			id.BaseURL = s
		case "earliestDatestamp":
			id.Earliest = s
		case "deletedRecord":
			if s == DeletedTransient || s == DeletedPersistent {
				id.Deleted = s
			}
		case "granularity":
			id.Granularity = Granularity(strings.Contains(s, "T"))
		}
		return err
	})
}

func (in *partReader) readItem(el *xml.StartElement) error {
	switch el.Name.Local {
	case "header", "record":
		if len(in.records) == maxRecords {
			return resourcesync.Invalidf("a part has more than %d records", maxRecords)
		}
		rec := Record{}
		var err error
		if begun := in.tokenStart; el.Name.Local == "header" {
			err = in.header(el, &rec)
		} else if err = in.record(&rec); err == nil {
			rec.text, rec.frame = in.tape.cut(begun, in.dec.InputOffset()), &in.frame
		}
		if err != nil {
			return err
		}
		switch {
		case rec.Identifier == "":
			rec.bad = "record has no identifier"
		case strings.ContainsRune(rec.Identifier, utf8.RuneError):
			rec.bad = "identifier is not UTF-8"
		case xmlrepair.IsDamaged([]byte(rec.Identifier)):
			rec.bad = "identifier is not well-formed XML"
		}
		in.records = append(in.records, rec)
		return nil
	case "resumptionToken":
		in.hasToken = true
		for _, a := range el.Attr {
			if a.Name.Local == "completeListSize" {
				if n, err := strconv.Atoi(strings.TrimSpace(a.Value)); err == nil && n > 0 {
					in.size = n
				}
			}
		}
		var err error
		if in.part.token, err = in.text(); err == nil && xmlrepair.IsDamaged([]byte(in.part.token)) {
			err = resourcesync.Invalidf("the resumptionToken is not well-formed XML")
		}
		return err
	}
	return in.skip()
}

func (in *partReader) header(el *xml.StartElement, rec *Record) error {
	for _, a := range el.Attr {
		if a.Name.Local != "status" {
			continue
		}
		rec.Deleted = strings.TrimSpace(a.Value) == "deleted"
		if xmlrepair.IsDamaged([]byte(a.Value)) {
			rec.bad = "status is not well-formed XML"
		}
	}
	return in.each(func(el *xml.StartElement) (err error) {
		switch el.Name.Local {
		case "identifier":
			rec.Identifier, err = in.text()
		case "datestamp":
			if rec.Datestamp, err = in.text(); xmlrepair.IsDamaged([]byte(rec.Datestamp)) {
				rec.Datestamp = ""
			}
			rec.Time = readTime(rec.Datestamp)
		case "setSpec":
			var spec string
			if spec, err = in.text(); spec != "" && len(rec.Sets) < maxSets && !xmlrepair.IsDamaged([]byte(spec)) {
				rec.Sets = append(rec.Sets, spec)
			}
		default:
			err = in.skip()
		}
		return err
	})
}

func (in *partReader) record(rec *Record) error {
	return in.each(func(el *xml.StartElement) error {
		switch el.Name.Local {
		case "header":
			return in.header(el, rec)
		case "metadata":
			return in.metadata(rec)
		}
		return in.skip()
	})
}

// metadata computes the hash of the metadata, and collects the URLs in it.
func (in *partReader) metadata(rec *Record) error {
	h := sha256.New()
	var text []byte // of the current identifier
	inside := 0     // depth of the current identifier; zero outside of one
	for end := in.depth - 1; ; {
		tok, err := in.step()
		if err != nil {
			return err
		}
		if in.depth == end {
			break
		}
		printToken(h, tok)
		switch tok := tok.(type) {
		case xml.StartElement:
			if inside == 0 && tok.Name.Local == "identifier" {
				inside, text = in.depth, text[:0]
			}
			for _, a := range tok.Attr {
				rec.Damaged = rec.Damaged || xmlrepair.IsDamaged([]byte(a.Value))
			}
		case xml.CharData:
			rec.Damaged = rec.Damaged || xmlrepair.IsDamaged(tok)
			if inside > 0 && len(text)+len(tok) <= maxText {
				text = append(text, tok...)
			}
		case xml.EndElement:
			if inside > in.depth {
				inside = 0
				s := strings.TrimSpace(string(text))
				if (strings.HasPrefix(s, "http://") || strings.HasPrefix(s, "https://")) && len(rec.URLs) < maxURLs {
					rec.URLs = append(rec.URLs, s)
				}
			}
		}
	}
	copy(rec.Print[:], h.Sum(nil))
	return nil
}

func printToken(h hash.Hash, tok xml.Token) {
	switch tok := tok.(type) {
	case xml.StartElement:
		fmt.Fprintf(h, "<%s %s", tok.Name.Space, tok.Name.Local)
		for _, a := range tok.Attr {
			fmt.Fprintf(h, " %s %s=%q", a.Name.Space, a.Name.Local, a.Value)
		}
	case xml.EndElement:
		_, _ = h.Write([]byte{'>'})
	case xml.CharData:
		_, _ = h.Write(bytes.TrimSpace(tok))
	}
}

// readTime parses a datestamp. It returns the zero time if the datestamp is unreadable.
// Repositories also use forms other than the two of the protocol.
func readTime(s string) time.Time {
	t, err := resourcesync.ParseTime(s)
	if err != nil { // a time of day without a zone; all datestamps are in UTC
		t, _ = resourcesync.ParseTime(s + "Z")
	}
	return t
}
