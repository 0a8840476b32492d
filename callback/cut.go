package callback

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/resourcesync"
)

// A place is where a subscription stands in its set's log.
type place struct {
	cursor   changelog.Cursor
	from     changelog.Cursor // Progress.From
	until    changelog.Cursor // the end of the cut that is being retried; zero: there is none
	diverged bool
}

// begin returns where the interval of the next delivery begins.
func (p *place) begin() changelog.Cursor {
	if p.from.IsZero() {
		return p.cursor
	}
	return p.from
}

// A cut is what is delivered at once: a change notification (Change
// Notification section 3) of the entries behind a cursor that pass a filter.
// Its text is shared with all cuts that have the same entries.
type cut struct {
	from    changelog.Cursor // where its interval begins
	cursor  changelog.Cursor // of the last entry that was looked at
	first   int64            // datetime of the first
	changes int              // 0: nothing passed, so there is nothing to deliver
	body    [][]byte
}

// size returns the length of the body in bytes.
func (c *cut) size() (n int64) {
	for _, part := range c.body {
		n += int64(len(part))
	}
	return n
}

// reader returns a new reader of the body.
func (c *cut) reader() io.Reader {
	if len(c.body) == 1 {
		return bytes.NewReader(c.body[0])
	}
	return &partsReader{parts: c.body}
}

// smallBody is up to where a body is put together, in bytes. net/http knows that
// what it reads then is in memory, and sends headers and body with one write.
const smallBody = 64 << 10

type partsReader struct {
	parts [][]byte
	off   int
}

func (r *partsReader) Read(p []byte) (n int, err error) {
	for n < len(p) && len(r.parts) > 0 {
		k := copy(p[n:], r.parts[0][r.off:])
		n, r.off = n+k, r.off+k
		if r.off == len(r.parts[0]) {
			r.parts, r.off = r.parts[1:], 0
		}
	}
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

// WriteTo writes what is left of the parts, with one system call where it can.
func (r *partsReader) WriteTo(w io.Writer) (int64, error) {
	if len(r.parts) == 0 {
		return 0, nil
	}
	rest := net.Buffers(slices.Clone(r.parts)) // which is used up
	rest[0] = rest[0][r.off:]
	r.parts, r.off = nil, 0
	return rest.WriteTo(w)
}

// readTime bounds a read of the memory, which has a place meanwhile.
const readTime = 30 * time.Second

// errNothing means that nothing follows a cursor now.
var errNothing = errors.New("nothing to deliver")

// A source is where a set's entries come from.
type source struct {
	set      string
	log      Log
	window   func(changelog.Cursor, int) ([]*page, int) // see window.behind
	readings *readings
	reading  flights[asked, *page]
	limits   limits
}

// asked is what was read behind. A read that began before something new came is
// not for those who know of it: it may have found nothing.
type asked struct {
	cursor  changelog.Cursor
	version int // of the topic
}

// limits bound a cut.
type limits struct {
	changes int // that are looked at, and so that are delivered
	bytes   int // of entries as XML, unless it is a single one
}

// cut returns what comes next at a place, at most limit changes, of what there
// was at a version of the topic, and perhaps more. Where the log
// has lost its tail it corrects the place and marks it. errNothing, or an error
// of Log.Since.
func (s *source) cut(ctx context.Context, at *place, f *filter, limit, version int) (*cut, error) {
	want := s.limits.changes
	if at.until.Position > at.cursor.Position {
		want = int(at.until.Position - at.cursor.Position)
	}
	pages, first, err := s.pages(ctx, at, want, version)
	if err != nil {
		return nil, err
	}
	x := extent{filter: f, limit: limit, bytes: s.limits.bytes}
	if !at.until.IsZero() {
		x.limit, x.bytes = want, 1<<31-1 // the same again, whatever the limits are by now
	}
	for _, p := range pages {
		if !x.take(p, first, want-x.looked) {
			break
		}
		first = 0
	}
	c := &cut{from: at.begin(), cursor: x.cursor, first: x.begins, changes: x.changes}
	if c.changes == 0 && c.from.IsZero() {
		c.from.Micros = x.begins - 1 // the zero cursor would say that nothing was left out
	}
	if c.changes > 0 {
		c.body = slices.Concat([][]byte{header(c, at.diverged, x.begins)}, x.parts, [][]byte{footer})
		if c.size() <= smallBody {
			c.body = [][]byte{slices.Concat(c.body...)}
		}
	}
	return c, nil
}

// pages returns pages with the want entries behind a place, or fewer.
func (s *source) pages(ctx context.Context, at *place, want, version int) ([]*page, int, error) {
	if pages, first := s.window(at.cursor, want); len(pages) > 0 {
		return pages, first, nil
	}
	p, first, err := s.read(ctx, at, version)
	if err != nil {
		return nil, 0, err
	}
	pages := []*page{p}
	// Rare: a cut that came out of the window, or of several pages, is retried.
	for !at.until.IsZero() && p.batch.Cursor.Position < at.until.Position {
		next := place{cursor: p.batch.Cursor}
		if p, _, err = s.read(ctx, &next, version); err != nil {
			return nil, 0, err
		}
		if next.diverged {
			at.until = changelog.Cursor{}
			break
		}
		pages = append(pages, p)
	}
	return pages, first, nil
}

// read returns a page with entries behind a place, from what others read or from
// the memory.
func (s *source) read(ctx context.Context, at *place, version int) (*page, int, error) {
	if p, first := s.readings.behind(s.set, at.cursor); p != nil {
		return p, first, nil
	}
	p, err := s.reading.do(ctx, asked{at.cursor, version}, func() (*page, error) {
		ctx, cancel := context.WithTimeout(ctx, readTime)
		defer cancel()
		b, err := s.log.Since(ctx, s.set, at.cursor, s.limits.changes)
		if err != nil {
			return nil, fmt.Errorf("read set %q after %v: %w", s.set, at.cursor, err)
		}
		p := newPage(b)
		if len(b.Entries) > 0 {
			s.readings.add(s.set, p)
		}
		return p, nil
	})
	if err != nil {
		return nil, 0, err
	}
	if p.batch.Diverged {
		*at = place{cursor: p.batch.After, diverged: true}
	}
	if len(p.batch.Entries) == 0 {
		return nil, 0, errNothing
	}
	return p, 0, nil
}

// An extent grows over entries until a cut is large enough.
type extent struct {
	filter       *filter
	limit, bytes int

	looked  int              // entries that were looked at
	cursor  changelog.Cursor // of the last of them
	changes int              // that pass
	length  int              // of them as XML
	begins  int64            // the first entry's datetime
	parts   [][]byte         // of pages
}

// take takes entries of a page from first on, at most n, and reports whether
// more may be taken.
func (x *extent) take(p *page, first, n int) bool {
	entries := p.batch.Entries
	begin, end := 0, 0 // of the run of bytes that is not in parts yet
	defer func() {
		if end > begin {
			x.parts = append(x.parts, p.text[begin:end:end])
		}
	}()
	for i := first; i < len(entries); i++ {
		if n == 0 {
			return false
		}
		if x.filter.match(&entries[i].Change) {
			_, ends := p.encoded()
			start := 0
			if i > 0 {
				start = ends[i-1]
			}
			length := ends[i] - start
			if x.changes == x.limit || x.changes > 0 && x.length+length > x.bytes {
				return false
			}
			if start != end {
				if end > begin {
					x.parts = append(x.parts, p.text[begin:end:end])
				}
				begin = start
			}
			end = ends[i]
			x.changes, x.length = x.changes+1, x.length+length
		}
		if x.looked == 0 {
			x.begins = entries[i].Micros
		}
		x.looked, x.cursor, n = x.looked+1, entries[i].Cursor, n-1
	}
	return n > 0
}

// footer ends every body.
var footer = resourcesync.AppendXMLFooter(nil, &resourcesync.Header{})

// header returns what stands before the entries, as changelog.Batch.XML writes
// it. begins is the first entry's datetime: a log that was not made when the
// subscription was has no time at its beginning.
func header(c *cut, diverged bool, begins int64) []byte {
	from := c.from.Micros
	if from == 0 {
		from = begins - 1
	}
	h := &resourcesync.Header{Capability: resourcesync.ChangeNotification}
	h.From, h.Until = changelog.Cursor{Micros: from}.Time(), c.cursor.Time()
	h.Attrs = []resourcesync.Attr{
		{Namespace: resourcesync.Terms, Name: "after", Value: c.from.String()},
		{Namespace: resourcesync.Terms, Name: "cursor", Value: c.cursor.String()},
	}
	if diverged {
		h.Attrs = append(h.Attrs, resourcesync.Attr{Namespace: resourcesync.Terms, Name: "diverged", Value: "true"})
	}
	return changelog.NewXMLWriter().AppendHeader(make([]byte, 0, 512), h)
}
