package resourcesync

import (
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/rshub/rshub/internal/slab"
)

// A scanner parses JSON changes of the usual form: their members are ASCII strings without
// escapes, whole numbers, and links of such members. It gives up on everything else,
// including invalid input. Then a jsonChange decodes the change and reports what is
// invalid, if anything is. Both yield the same result for what the scanner accepts, but the
// scanner takes half the time.
type scanner struct {
	in    string // text to parse; the parsed strings share its memory
	pos   int    // offset of the next byte in in
	ok    bool   // whether the scanner has not given up
	waste int    // bytes of in that are retained unnecessarily, minus the permitted number
	links []Link // links of the change; the slice is reused

	lengthSlab slab.Slab[int64]
	linkSlab   slab.Slab[Link]
}

// The bytes of a change, and of each of its links, that may be retained unnecessarily: white
// space and names of members. Change.Memory accounts for them.
const (
	maxWaste     = 400
	maxLinkWaste = 100
)

// scanEntry parses the change in b into e. If it returns false, it has given up, and e is
// incomplete.
func (s *scanner) scanEntry(b []byte, e *PageEntry) bool {
	if len(b) > maxChange {
		return false
	}
	s.reset(string(b))
	s.change(e)
	return s.finish()
}

// maxScanBytes is the maximum size of a document for scanDocument. The whole text stays in
// memory for as long as one of its changes does.
const maxScanBytes = 128 << 10

// scanDocument parses a document that consists of changes of the usual form. It returns
// nil, nil if it gives up, and an error only if m returns one.
func scanDocument(text string, l Limits, m *memoryMeter) (*Document, error) {
	var s scanner
	s.reset(text)
	s.expect('{')
	if s.name() != "changes" {
		return nil, nil
	}
	s.expect('[')
	d := &Document{Items: make([]Item, 0, min(strings.Count(text, `"loc"`), l.Entries))}
	for n := 0; s.nextElement(n, ']'); n++ {
		var e PageEntry
		s.change(&e)
		if !s.ok || n == l.Entries || l.Check != nil && l.Check(&e.Change) != nil {
			return nil, nil
		}
		if err := m.addEntry(&e.Change); err != nil {
			return nil, inEntry(err, n+1, e.Loc)
		}
		d.Items = append(d.Items, Item{Change: e.Change})
	}
	if s.expect('}'); !s.finish() {
		return nil, nil
	}
	return d, nil
}

// readUpTo reads up to n bytes from r. complete reports whether they are all that r has. An
// error of r makes complete false and is not returned: the next read must return it again.
func readUpTo(r io.Reader, n int) (text []byte, complete bool) {
	text = make([]byte, 0, min(4<<10, n))
	for {
		k, err := r.Read(text[len(text):cap(text)])
		text = text[:len(text)+k]
		if err != nil || len(text) == n {
			return text, err == io.EOF
		}
		if len(text) == cap(text) {
			text = append(make([]byte, 0, min(4*cap(text), n)), text...)
		}
	}
}

// reset makes s parse text from its start.
func (s *scanner) reset(text string) { s.in, s.pos, s.ok, s.waste = text, 0, true, len(text) }

// finish reports whether s parsed the whole text and retains no more unnecessary bytes than
// permitted.
func (s *scanner) finish() bool {
	s.skipSpace()
	return s.ok && s.pos == len(s.in) && s.waste <= 0
}

// A memberSet has a bit for each member of an object that was read.
type memberSet uint

// markMember adds the member with the given bit to m. It gives up if m has it already.
func (s *scanner) markMember(m *memberSet, bit int) {
	s.ok = s.ok && *m&(1<<bit) == 0
	*m |= 1 << bit
}

// change parses a change into e.
func (s *scanner) change(e *PageEntry) {
	c := &e.Change
	var m memberSet
	s.links = s.links[:0]
	s.expect('{')
	for n := 0; s.nextElement(n, '}'); n++ {
		switch s.name() {
		case "loc":
			s.markMember(&m, 0)
			c.Loc = s.text()
		case "change":
			s.markMember(&m, 1)
			c.Change = s.changeType()
		case "datetime":
			s.markMember(&m, 2)
			c.Datetime = s.time()
		case "lastmod":
			s.markMember(&m, 3)
			c.Lastmod = s.time()
		case "hash":
			s.markMember(&m, 4)
			c.Hash = normalizeSpace(s.text())
		case "length":
			s.markMember(&m, 5)
			c.Length = s.length()
		case "type":
			s.markMember(&m, 6)
			c.Type = s.text()
		case "ln":
			s.markMember(&m, 7)
			s.expect('[')
			for n := 0; s.nextElement(n, ']'); n++ {
				s.link()
			}
		case "position":
			s.markMember(&m, 8)
			e.Position = s.number()
		case "sourceDatetime":
			s.markMember(&m, 9)
			e.SourceDatetime = s.time()
		default:
			s.ok = false
		}
	}
	s.ok = s.ok && c.Loc != ""
	s.waste -= maxWaste + len(s.links)*maxLinkWaste
	c.Links = s.linkSlab.Make(len(s.links))
	copy(c.Links, s.links)
}

// link parses a link and appends it to s.links.
func (s *scanner) link() {
	if len(s.links) == maxLinks {
		s.ok = false
		return
	}
	var m memberSet
	var l Link
	s.expect('{')
	for n := 0; s.nextElement(n, '}'); n++ {
		switch s.name() {
		case "rel":
			s.markMember(&m, 0)
			l.Rel = s.text()
		case "href":
			s.markMember(&m, 1)
			l.Href = s.text()
		case "hash":
			s.markMember(&m, 2)
			l.Hash = normalizeSpace(s.text())
		case "length":
			s.markMember(&m, 3)
			l.Length = s.length()
		case "type":
			s.markMember(&m, 4)
			l.Type = s.text()
		case "profile":
			s.markMember(&m, 5)
			l.Profile = s.text()
		default:
			s.ok = false
		}
	}
	s.ok = s.ok && l.Rel != "" && l.Href != ""
	s.links = append(s.links, l)
}

// skipSpace skips white space.
func (s *scanner) skipSpace() {
	for s.pos < len(s.in) {
		switch s.in[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return
		}
	}
}

// expect skips white space and the byte b, or gives up.
func (s *scanner) expect(b byte) {
	s.skipSpace()
	if s.pos < len(s.in) && s.in[s.pos] == b {
		s.pos++
	} else {
		s.ok = false
	}
}

// nextElement reports whether an object or array, of which n elements were parsed, has
// another one. It parses the comma before that element, or the closing byte end.
func (s *scanner) nextElement(n int, end byte) bool {
	s.skipSpace()
	if !s.ok || s.pos == len(s.in) {
		s.ok = false
		return false
	}
	if s.in[s.pos] == end {
		s.pos++
		return false
	}
	if n > 0 {
		s.expect(',')
	}
	return s.ok
}

// name parses the name of a member and the colon after it.
func (s *scanner) name() string {
	name := s.quoted()
	s.expect(':')
	return name
}

// quoted parses a string. The result shares the memory of s.in.
func (s *scanner) quoted() string {
	s.expect('"')
	text := s.in[s.pos:]
	text = text[:plainLen(text)]
	s.pos += len(text)
	if s.pos < len(s.in) && s.in[s.pos] == '"' {
		s.pos++
	} else {
		s.ok = false
	}
	return text
}

// text parses a string that the change retains.
func (s *scanner) text() string {
	text := s.quoted()
	s.waste -= len(text)
	return text
}

// changeType parses a known ChangeType.
func (s *scanner) changeType() ChangeType {
	switch s.quoted() {
	case string(Created):
		return Created
	case string(Updated):
		return Updated
	case string(Deleted):
		return Deleted
	}
	s.ok = false
	return ""
}

// time parses a datetime.
func (s *scanner) time() time.Time {
	t, msg := parseTime(s.quoted())
	s.ok = s.ok && msg == ""
	return t
}

// length parses a length in bytes.
func (s *scanner) length() *int64 {
	n := s.number()
	s.ok = s.ok && n <= math.MaxInt64
	return s.lengthSlab.New(int64(n))
}

// number parses a number without a sign, a fraction and an exponent.
func (s *scanner) number() uint64 {
	s.skipSpace()
	begin := s.pos
	for s.pos < len(s.in) && isDigit(s.in[s.pos]) {
		s.pos++
	}
	digits := s.in[begin:s.pos]
	n, err := strconv.ParseUint(digits, 10, 64)
	s.ok = s.ok && err == nil && (digits == "0" || digits[0] != '0')
	return n
}
