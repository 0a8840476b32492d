package resourcesync

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/rshub/rshub/internal/plainjson"
)

// The functions of this file read what most programs send: JSON that is plain, as package
// plainjson says, with no members but the usual ones, each at most once, and nothing wrong
// in it. They are good for that alone: they take a fifth of the time of jsonInput. They
// explain nothing. Whatever else they meet, they return false, and jsonInput reads it from
// the beginning. So what they accept must be what jsonInput makes of it; the tests compare.

// plainChange reads a change. The strings of c are parts of the text behind in.
func plainChange(in *plainjson.Reader, c *Change) bool {
	var seen members16
	for more := in.Next('{', true); more; more = in.Next('{', false) {
		switch in.Name() {
		case "loc":
			seen.add(in, 0)
			c.Loc = in.String()
		case "change":
			seen.add(in, 1)
			plainChangeType(in, &c.Change)
		case "datetime":
			seen.add(in, 2)
			plainTime(in, &c.Datetime)
		case "lastmod":
			seen.add(in, 3)
			plainTime(in, &c.Lastmod)
		case "changefreq":
			seen.add(in, 4)
			c.Changefreq = in.String()
		case "hash":
			seen.add(in, 5)
			plainHash(in, &c.Hash)
		case "length":
			seen.add(in, 6)
			c.Length = plainLength(in)
		case "type":
			seen.add(in, 7)
			c.Type = in.String()
		case "encoding":
			seen.add(in, 8)
			c.Encoding = in.String()
		case "path":
			seen.add(in, 9)
			c.Path = in.String()
		case "ln":
			seen.add(in, 10)
			plainLinks(in, &c.Links)
		case tagsName:
			seen.add(in, 11)
			plainTags(in, &c.Attrs)
		default:
			return false
		}
	}
	return in.Ok() && c.Loc != ""
}

func plainLinks(in *plainjson.Reader, links *[]Link) {
	for more := in.Next('[', true); more; more = in.Next('[', false) {
		var l Link
		if len(*links) == maxLinks || !plainLink(in, &l) {
			in.Fail()
			return
		}
		*links = append(*links, l)
	}
}

func plainLink(in *plainjson.Reader, l *Link) bool {
	var seen members16
	for more := in.Next('{', true); more; more = in.Next('{', false) {
		switch in.Name() {
		case "rel":
			seen.add(in, 0)
			l.Rel = in.String()
		case "href":
			seen.add(in, 1)
			l.Href = in.String()
		case "pri":
			seen.add(in, 2)
			if n := in.Number(); 1 <= n && n <= maxPri {
				l.Pri = int(n)
			} else {
				in.Fail()
			}
		case "modified":
			seen.add(in, 3)
			plainTime(in, &l.Modified)
		case "hash":
			seen.add(in, 4)
			plainHash(in, &l.Hash)
		case "length":
			seen.add(in, 5)
			l.Length = plainLength(in)
		case "type":
			seen.add(in, 6)
			l.Type = in.String()
		case "encoding":
			seen.add(in, 7)
			l.Encoding = in.String()
		case "path":
			seen.add(in, 8)
			l.Path = in.String()
		case "profile":
			seen.add(in, 9)
			l.Profile = in.String()
		default:
			return false
		}
	}
	return in.Ok() && l.Rel != "" && l.Href != ""
}

// members16 are the members of an object that were there, of 16 at most.
type members16 uint16

// add fails if a member is there twice.
func (m *members16) add(in *plainjson.Reader, member int) {
	if *m&(1<<member) != 0 {
		in.Fail()
	}
	*m |= 1 << member
}

func plainChangeType(in *plainjson.Reader, dst *ChangeType) {
	switch in.String() {
	case string(Created):
		*dst = Created
	case string(Updated):
		*dst = Updated
	case string(Deleted):
		*dst = Deleted
	default:
		in.Fail()
	}
}

func plainTime(in *plainjson.Reader, dst *time.Time) {
	t, rule := parseTime(in.String())
	if rule != "" {
		in.Fail()
	}
	*dst = t
}

func plainHash(in *plainjson.Reader, dst *string) {
	if *dst = in.String(); !isOneSpaced(*dst) {
		in.Fail()
	}
}

func plainLength(in *plainjson.Reader) *int64 {
	n := in.Number()
	return &n
}

// A text is a document that is read before it is decoded, or the beginning of one.
type text struct {
	bytes.Buffer
	whole bool      // all of the document is there
	rest  io.Reader // what follows; it may be the error that ended the reading
}

// texts holds texts to use again. A large one is not kept.
var texts = sync.Pool{New: func() any { return new(text) }}

const (
	maxAhead = 512 << 10 // bytes of a text
	maxKept  = 512 << 10
)

// release ends the use of t.
func (t *text) release() {
	if t.Reset(); t.Cap() <= maxKept {
		t.whole, t.rest = false, nil
		texts.Put(t)
	}
}

// read reads a document: to its end, to maxAhead, or until l.Room says that it is too much.
// An error is another one of l.Room.
func (t *text) read(r io.Reader, l Limits) error {
	t.rest = r
	for t.Len() < maxAhead {
		t.Grow(bytes.MinRead)
		if l.Room != nil {
			if err := l.Room(2 * int64(t.Len()+bytes.MinRead)); isError(err) {
				return nil
			} else if err != nil {
				return jsonError(err)
			}
		}
		free := t.AvailableBuffer()
		n, err := r.Read(free[:min(cap(free), maxAhead-t.Len())])
		t.Write(free[:n])
		if err != nil {
			t.whole, t.rest = err == io.EOF, failed{err}
			return nil
		}
	}
	return nil
}

// failed is a reader that has failed, or is at its end.
type failed struct{ err error }

func (f failed) Read([]byte) (int, error) { return 0, f.err }

// again returns the document to read from the beginning, with limits that count t.
func (t *text) again(l Limits) (io.Reader, Limits) {
	if tell, held := l.Room, int64(t.Len()); tell != nil {
		l.Room = func(bytes int64) error { return tell(held + bytes) }
	}
	return io.MultiReader(bytes.NewReader(t.Bytes()), t.rest), l
}

// plainDepth is how deep plain documents are nested at most.
const plainDepth = 5

// document decodes the document, as ReadJSON does. Without an error and without a document it is
// not plain.
func (t *text) document(l Limits) (*Document, error) {
	if !t.whole || int64(t.Len()) > l.Bytes || l.Depth <= plainDepth {
		return nil, nil
	}
	s := string(bytes.TrimRight(t.Bytes(), xmlSpace))
	m := l.room(nil, jsonBlowUp)
	m.held = int64(t.Len() + len(s))
	in := plainjson.NewReader(s)
	d := new(Document)
	var seen members16
	for more := in.Next('{', true); more; more = in.Next('{', false) {
		switch in.Name() {
		case "changes":
			seen.add(&in, 0)
			if err := plainChanges(&in, d, l, m, len(s)); err != nil {
				return nil, err
			}
		case "from":
			seen.add(&in, 1)
			plainTime(&in, &d.From)
		case "until":
			seen.add(&in, 2)
			plainTime(&in, &d.Until)
		case "capability":
			seen.add(&in, 3)
			d.Capability = in.String()
		default:
			in.Fail()
		}
	}
	if !in.Done() || seen&1 == 0 {
		return nil, nil
	}
	return d, nil
}

// plainChanges reads the entries of a document of so many bytes. An error is one of l.Room.
func plainChanges(in *plainjson.Reader, d *Document, l Limits, m *room, size int) error {
	begin := in.At()
	for more := in.Next('[', true); more; more = in.Next('[', false) {
		if len(d.Items) == 1 { // the others are probably as large as the first
			d.Items = append(make([]Item, 0, min((size-begin)/(in.At()-begin)+1, mostAtOnce)), d.Items...)
		}
		d.Items = append(d.Items, Item{})
		c := &d.Items[len(d.Items)-1].Change
		if len(d.Items) > l.Entries || !plainChange(in, c) {
			in.Fail()
			return nil
		}
		if err := m.add(c); err != nil && !isError(err) {
			return err
		} else if err != nil || l.Check != nil && l.Check(c) != nil {
			in.Fail()
			return nil
		}
	}
	return nil
}

// mostAtOnce is for how many entries memory is taken before they are read.
const mostAtOnce = 1000

// isError reports whether err says what is wrong with the document.
func isError(err error) bool {
	_, ok := errors.AsType[*Error](err)
	return ok
}
