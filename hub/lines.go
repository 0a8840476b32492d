package hub

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/problem"
	"github.com/rshub/rshub/resourcesync"
)

// How an NDJSON stream is cut into batches.
const (
	linesPerBatch = 1000
	maxLine       = 1 << 20 // bytes of one line
)

// receiveLines appends a stream of one change per line, in batches of 1,000
// lines. Blank lines count, so that the cut depends only on line numbers. Each
// batch is accepted as a whole or not at all. A client can send the whole stream
// again with the same key; see linesKey for what the hub then adds. An error is a
// *feed.Problem that says what was accepted.
func (h *Hub) receiveLines(ctx context.Context, set, key string, from *intake) (*feed.Receipt, error) {
	in := lineReader{set: set, from: from, r: resourcesync.NewNDJSONReader(from, resourcesync.Limits{Bytes: maxLine}), maxBytes: h.opts.MaxBody}
	if key != "" {
		in.sum = sha256.New()
	}
	all := &feed.Receipt{Set: set}
	var last feed.Cursor // of the newest batch
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
			// The memory would not store the key, because it stores it with batch 1.
			err = resourcesync.Invalidf("with an Idempotency-Key, one of the first %d lines must be a change; here all of them are blank", linesPerBatch)
		}
		if err != nil {
			h.metrics.published(changelog.Appended{}, err, 0)
		} else if len(p.Changes) > 0 {
			if key != "" {
				p.Key = h.linesKey(ctx, key, i, all.Cursor)
				if i == 1 {
					p.Unless = h.documentKey(ctx, key)
				}
			}
			var a changelog.Appended
			if a, err = h.Publish(ctx, set, p); err == nil && a.After.Position < last.Position {
				// The set was deleted, or its log lost its tail, and the earlier batches with it.
				all, err = &feed.Receipt{Set: set}, fmt.Errorf("append lines after %v: got cursor %v: %w", last, a.Cursor, feed.ErrUnknown)
			}
			if err == nil {
				last = a.Cursor
				all.Add(feed.NewReceipt(set, a.Cursor, a.Count, a.Replayed), in.line)
			}
		}
		from.shrink()
		if err != nil {
			p := *problem.From(err)
			p.Accepted = &feed.Progress{Count: all.Count, Line: all.Line, Cursor: all.Cursor}
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

// A lineReader cuts a stream into batches.
type lineReader struct {
	set      string
	from     *intake
	r        *resourcesync.NDJSONReader
	maxBytes int64                // of a batch's lines
	sum      hash.Hash            // of a batch's lines; nil: nobody asks for it, because there is no key
	ahead    *resourcesync.Change // a change that was read, but belongs to the next batch
	err      error                // error of reading; it stays
	line     int                  // number of the line of the newest change in a batch
	entry    int                  // how many changes were read
}

// batch reads and validates the lines up to number end. It does not wait for
// the line after them, unless line end is blank.
func (in *lineReader) batch(end int) (p changelog.Publish, err error) {
	if in.sum != nil {
		in.sum.Reset()
	}
	size, memory := int64(0), int64(0)
	defer func() { in.from.pay(len(p.Changes)) }()
	for in.line < end {
		if in.ahead == nil && in.err == nil {
			in.ahead, in.err = in.r.Next()
			in.from.patient.renew()
		}
		if in.err == io.EOF || in.r.Line() > end {
			break
		}
		in.entry++
		if in.err != nil {
			if _, ok := errors.AsType[*resourcesync.Error](in.err); !ok { // it is not about a line
				return p, problem.Unreadable(in.err)
			}
			return p, in.others(in.place(in.err), end)
		}
		in.line = in.r.Line()
		line := in.r.Bytes()
		if size += int64(len(line)); size > in.maxBytes {
			return p, in.place(&resourcesync.Error{Err: resourcesync.ErrTooLarge,
				Msg: fmt.Sprintf("%d lines are one batch, and together larger than %d bytes", linesPerBatch, in.maxBytes)})
		}
		if in.sum != nil {
			in.sum.Write(line)
			in.sum.Write(lineEnd)
		}
		if err := in.check(in.ahead); err != nil {
			return p, in.others(in.place(err), end)
		}
		memory += in.ahead.Memory()
		if err := in.from.room(memory); err != nil {
			return p, in.place(err)
		}
		if n := len(p.Changes); n == cap(p.Changes) { // append alone would copy most of them twice
			p.Changes = slices.Grow(p.Changes, min(3*n+1, linesPerBatch))
		}
		p.Changes = append(p.Changes, *in.ahead)
		in.ahead = nil
	}
	if in.sum != nil {
		in.sum.Sum(p.Hash[:0])
	}
	return p, nil
}

var lineEnd = []byte{'\n'}

// check returns an error if a change is not valid, or if the set does not take it.
func (in *lineReader) check(c *resourcesync.Change) error {
	if err := c.Validate(); err != nil {
		return err
	}
	if err := takes(in.set, c); err != nil {
		return err
	}
	return nil
}

// others adds to the error of a line the errors of those further lines of the batch that
// have already come.
func (in *lineReader) others(err error, end int) error {
	first, ok := errors.AsType[*resourcesync.Error](err)
	for ok && len(first.More)+1 < resourcesync.MaxErrors && in.r.Resume() {
		c, err := in.r.Next()
		if in.r.Line() > end {
			break
		}
		in.entry++
		if err == nil {
			err = in.check(c)
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
