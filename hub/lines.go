package hub

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/problem"
	"github.com/rshub/rshub/resourcesync"
)

// How an NDJSON stream is cut.
const (
	linesPerBatch = 1000
	maxLine       = 1 << 20 // bytes of one line
)

// receiveLines appends a stream of one change a line, in batches of 1,000
// lines. Blank lines count, so that the cut depends on nothing but line
// numbers. Each batch is taken whole or not at all. The key of a batch is made
// from the client's key and the number of the batch; so a client can send the
// whole stream again with its key, and only what is missing is added. An error
// is a *problem.Problem that says what was accepted.
func (h *Hub) receiveLines(ctx context.Context, set, key string, from *intake) (*feed.Receipt, error) {
	in := lineReader{from: from, r: h.lines.Get().(*resourcesync.NDJSONReader), maxBytes: h.opts.MaxBody, keyed: key != ""}
	in.r.Reset(from)
	defer func() {
		in.r.Reset(nil)
		h.lines.Put(in.r)
	}()
	all := &feed.Receipt{Set: set}
	for i := 1; in.err != io.EOF; i++ {
		var p changelog.Publish
		var err error
		if i > 1 {
			err = from.pace()
		}
		if err == nil {
			p, err = in.batch(i * linesPerBatch)
		}
		if err == nil && key != "" && i == 1 && len(p.Changes) == 0 && in.err != io.EOF {
			// The key would not be known after it, because batch 1 is what it is known by.
			err = resourcesync.Invalid("with an Idempotency-Key, the first %d lines must have at least one change, but these are blank", linesPerBatch)
		}
		if err != nil {
			h.metrics.published(changelog.Appended{}, err, 0)
		} else if len(p.Changes) > 0 {
			if key != "" {
				p.Key = h.linesKey(ctx, key, i)
				if i == 1 {
					p.Unless = h.documentKey(ctx, key)
				}
			}
			var a changelog.Appended
			if a, err = h.Publish(ctx, set, p); err == nil {
				all.Add(feed.NewReceipt(set, a.Cursor, a.Count, a.Replayed), in.line)
			}
		}
		from.renew()
		if err != nil {
			p := *problem.From(err)
			p.Accepted = &problem.Accepted{Count: all.Count, Line: all.Line, Cursor: all.Cursor}
			return nil, &p
		}
	}
	if all.Count == 0 {
		err := noChange()
		h.metrics.published(changelog.Appended{}, err, 0)
		return nil, err
	}
	return all, nil
}

// newLines returns what lines are read with, which is kept for the next stream.
func newLines() any {
	return resourcesync.NewNDJSONReader(nil, resourcesync.Limits{Bytes: maxLine})
}

// A lineReader cuts a stream into batches.
type lineReader struct {
	from     *intake
	r        *resourcesync.NDJSONReader
	maxBytes int64               // of a batch's lines
	keyed    bool                // the memory has to know a batch again: its Hash is needed
	next     resourcesync.Change // when it was read, but is in no batch yet
	held     bool                // there is a next
	err      error               // of reading; it stays
	line     int                 // number of the line of the newest change in a batch
	entry    int                 // how many changes were read
}

// batch reads and validates the lines up to number end. It does not wait for
// the line after them, unless line end is blank.
func (in *lineReader) batch(end int) (p changelog.Publish, err error) {
	sum := sha256.New()
	size, memory := int64(0), int64(0)
	defer func() { in.from.pay(len(p.Changes)) }()
	for in.line < end {
		if !in.held && in.err == nil {
			in.err = in.r.Read(&in.next)
			in.held = in.err == nil
			in.from.patient.renew()
		}
		if in.err == io.EOF || in.r.Line() > end {
			break
		}
		in.entry++
		if in.err != nil {
			return p, in.others(in.place(readError(in.err)), end)
		}
		in.line = in.r.Line()
		line := in.r.Bytes()
		if size += int64(len(line)); size > in.maxBytes {
			return p, in.place(&resourcesync.Error{Err: resourcesync.ErrTooLarge,
				Rule: fmt.Sprintf("a batch is %d lines, and this one is larger than %d bytes", linesPerBatch, in.maxBytes)})
		}
		if in.keyed {
			sum.Write(line)
			sum.Write([]byte{'\n'})
		}
		if err := in.next.Validate(); err != nil {
			return p, in.others(in.place(err), end)
		}
		memory += in.next.Memory()
		if err := in.from.room(memory); err != nil {
			return p, in.place(err)
		}
		if p.Changes == nil {
			p.Changes = make([]resourcesync.Change, 0, in.from.lines(len(line), end-in.line+1))
		}
		p.Changes = append(p.Changes, in.next)
		in.held = false
	}
	if in.keyed {
		p.Hash = [32]byte(sum.Sum(nil))
	}
	return p, nil
}

// others adds to the error of a line what is wrong with those lines of the batch that have
// come already.
func (in *lineReader) others(err error, end int) error {
	first, ok := errors.AsType[*resourcesync.Error](err)
	for ok && len(first.More)+1 < resourcesync.MaxErrors && in.r.More() {
		c, err := in.r.Next()
		if in.r.Line() > end {
			break
		}
		in.entry++
		if err == nil {
			err = c.Validate()
		}
		more, wrong := errors.AsType[*resourcesync.Error](in.place(err))
		if wrong {
			first.More = append(first.More, more)
		} else if err != nil {
			break
		}
	}
	return err
}

// place adds to an error the line and the entry that it is about.
func (in *lineReader) place(err error) error {
	if e, ok := errors.AsType[*resourcesync.Error](err); ok {
		e.Entry, e.Line = in.entry, in.r.Line()
	}
	return err
}
