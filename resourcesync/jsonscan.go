package resourcesync

import (
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/rshub/rshub/internal/slab"
)

// A scanner reads changes in JSON of the usual kind: their members are texts in ASCII without
// escapes, whole numbers, and links of such members. It gives up on everything else, also on
// what is wrong. Then a jsonInput reads the change, and says what is wrong, if anything is. What
// a scanner reads, a jsonInput reads to the same change; but a scanner takes half of the time.
type scanner struct {
	in    string // the change; what is kept of it shares its memory
	at    int
	ok    bool   // it has not given up
	spare int    // bytes of in that are kept in vain, less those that may be
	links []Link // of the change; the slice is used again

	lengths slab.Slab[int64]
	places  slab.Slab[Link]
}

// How many bytes of the text of a change, and of each of its links, may stay in memory although
// they are not kept: white space, and names of members. See Change.Memory.
const (
	spareBytes     = 400
	spareLinkBytes = 100
)

// scan reads the change in b into e. If it gives up, it returns false, and e has a part.
func (s *scanner) scan(b []byte, e *PageEntry) bool {
	if len(b) > maxChange {
		return false
	}
	s.begin(string(b))
	s.change(e)
	return s.end()
}

// scannedBytes is the most bytes of a document that scanDocument reads. While one change of it is
// kept, the whole text is.
const scannedBytes = 128 << 10

// scanDocument reads a document that has changes of the usual kind, and nothing else. It returns
// nil if it gives up. An error is that of m.
func scanDocument(text string, l Limits, m *room) (*Document, error) {
	var s scanner
	s.begin(text)
	s.byte('{')
	if s.name() != "changes" {
		return nil, nil
	}
	s.byte('[')
	d := &Document{Items: make([]Item, 0, min(strings.Count(text, `"loc"`), l.Entries))}
	for n := 0; s.more(n, ']'); n++ {
		var e PageEntry
		s.change(&e)
		if !s.ok || n == l.Entries || l.Check != nil && l.Check(&e.Change) != nil {
			return nil, nil
		}
		if err := m.add(&e.Change); err != nil {
			return nil, inEntry(err, n+1, e.Loc)
		}
		d.Items = append(d.Items, Item{Change: e.Change})
	}
	if s.byte('}'); !s.end() {
		return nil, nil
	}
	return d, nil
}

// readMost reads up to n bytes. whole reports whether that is all there is.
func readMost(r io.Reader, n int) (text []byte, whole bool) {
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

// begin begins to read a text.
func (s *scanner) begin(text string) { s.in, s.at, s.ok, s.spare = text, 0, true, len(text) }

// end reports whether the whole text was read, and little of it is not kept.
func (s *scanner) end() bool {
	s.space()
	return s.ok && s.at == len(s.in) && s.spare <= 0
}

// A seen has a bit for each member of an object that was read.
type seen uint

// once gives up if the member with a bit was there before.
func (s *scanner) once(m *seen, bit int) {
	s.ok = s.ok && *m&(1<<bit) == 0
	*m |= 1 << bit
}

func (s *scanner) change(e *PageEntry) {
	c := &e.Change
	var m seen
	s.links = s.links[:0]
	s.byte('{')
	for n := 0; s.more(n, '}'); n++ {
		switch s.name() {
		case "loc":
			s.once(&m, 0)
			c.Loc = s.text()
		case "change":
			s.once(&m, 1)
			c.Change = s.changeType()
		case "datetime":
			s.once(&m, 2)
			c.Datetime = s.time()
		case "lastmod":
			s.once(&m, 3)
			c.Lastmod = s.time()
		case "hash":
			s.once(&m, 4)
			c.Hash = oneSpace(s.text())
		case "length":
			s.once(&m, 5)
			c.Length = s.length()
		case "type":
			s.once(&m, 6)
			c.Type = s.text()
		case "ln":
			s.once(&m, 7)
			s.byte('[')
			for n := 0; s.more(n, ']'); n++ {
				s.link()
			}
		case "position":
			s.once(&m, 8)
			e.Position = s.number()
		case "sourceDatetime":
			s.once(&m, 9)
			e.SourceDatetime = s.time()
		default:
			s.ok = false
		}
	}
	s.ok = s.ok && c.Loc != ""
	s.spare -= spareBytes + len(s.links)*spareLinkBytes
	c.Links = s.places.Make(len(s.links))
	copy(c.Links, s.links)
}

func (s *scanner) link() {
	if len(s.links) == maxLinks {
		s.ok = false
		return
	}
	var m seen
	var l Link
	s.byte('{')
	for n := 0; s.more(n, '}'); n++ {
		switch s.name() {
		case "rel":
			s.once(&m, 0)
			l.Rel = s.text()
		case "href":
			s.once(&m, 1)
			l.Href = s.text()
		case "hash":
			s.once(&m, 2)
			l.Hash = oneSpace(s.text())
		case "length":
			s.once(&m, 3)
			l.Length = s.length()
		case "type":
			s.once(&m, 4)
			l.Type = s.text()
		case "profile":
			s.once(&m, 5)
			l.Profile = s.text()
		default:
			s.ok = false
		}
	}
	s.ok = s.ok && l.Rel != "" && l.Href != ""
	s.links = append(s.links, l)
}

func (s *scanner) space() {
	for s.at < len(s.in) {
		switch s.in[s.at] {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return
		}
	}
}

// byte reads one byte, with white space before it, or gives up.
func (s *scanner) byte(b byte) {
	s.space()
	if s.at < len(s.in) && s.in[s.at] == b {
		s.at++
	} else {
		s.ok = false
	}
}

// more reports whether an object or an array, of which n members were read, has another one. It
// reads the comma before it, or the end.
func (s *scanner) more(n int, end byte) bool {
	s.space()
	if !s.ok || s.at == len(s.in) {
		s.ok = false
		return false
	}
	if s.in[s.at] == end {
		s.at++
		return false
	}
	if n > 0 {
		s.byte(',')
	}
	return s.ok
}

// name reads the name of a member, and the colon behind it.
func (s *scanner) name() string {
	name := s.quoted()
	s.byte(':')
	return name
}

// quoted reads a text. What it returns shares the memory of in.
func (s *scanner) quoted() string {
	s.byte('"')
	text := s.in[s.at:]
	text = text[:plainLen(text)]
	s.at += len(text)
	if s.at < len(s.in) && s.in[s.at] == '"' {
		s.at++
	} else {
		s.ok = false
	}
	return text
}

func (s *scanner) text() string {
	text := s.quoted()
	s.spare -= len(text)
	return text
}

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

func (s *scanner) time() time.Time {
	t, rule := parseTime(s.quoted())
	s.ok = s.ok && rule == ""
	return t
}

func (s *scanner) length() *int64 {
	n := s.number()
	s.ok = s.ok && n <= math.MaxInt64
	return s.lengths.New(int64(n))
}

// number reads a number without sign, fraction and exponent.
func (s *scanner) number() uint64 {
	s.space()
	begin := s.at
	for s.at < len(s.in) && isDigit(s.in[s.at]) {
		s.at++
	}
	digits := s.in[begin:s.at]
	n, err := strconv.ParseUint(digits, 10, 64)
	s.ok = s.ok && err == nil && (digits == "0" || digits[0] != '0')
	return n
}
