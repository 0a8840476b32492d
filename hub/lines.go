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

// Limits of an NDJSON stream.
const (
	linesPerBatch = 1000
	maxLineBytes  = 1 << 20 // bytes of one line
)

// receiveLines appends a stream of one change per line, in batches of 1,000 lines. Blank lines
// count, so that the division into batches depends only on line numbers. Each batch is
// accepted as a whole or not at all. A client can send the whole stream again with the same
// key; linesKey describes what the hub then adds. The error is a *feed.Problem that reports
// what was accepted.
func (h *Hub) receiveLines(ctx context.Context, set, key string, in *intake) (*feed.Receipt, error) {
	lines := lineReader{set: set, in: in, lines: resourcesync.NewNDJSONReader(in, resourcesync.Limits{Bytes: maxLineBytes}), maxBytes: h.opts.MaxBody}
	if key != "" {
		lines.sum = sha256.New()
	}
	receipt := &feed.Receipt{Set: set}
	var last feed.Cursor // cursor of the newest batch
	for i := 1; lines.err != io.EOF; i++ {
		var p changelog.Publish
		var err error
		if i > 1 {
			err = in.throttle()
		}
		if err == nil {
			p, err = lines.readBatch(i * linesPerBatch)
		}
		if err == nil && key != "" && i == 1 && len(p.Changes) == 0 && lines.err != io.EOF {
			// The memory stores the key with batch 1, so it would not store the key at all.
			err = resourcesync.Invalidf("the first %d lines are blank; with an Idempotency-Key, at least one of them must be a change", linesPerBatch)
		}
		if err != nil {
			h.metrics.countPublish(changelog.Appended{}, err, 0)
		} else if len(p.Changes) > 0 {
			if key != "" {
				p.Key = h.linesKey(ctx, key, i, receipt.Cursor)
				if i == 1 {
					p.Unless = h.documentKey(ctx, key)
				}
			}
			var a changelog.Appended
			if a, err = h.Publish(ctx, set, p); err == nil && a.After.Position < last.Position {
				// The set was deleted, or its log lost its newest entries, including earlier batches.
				receipt, err = &feed.Receipt{Set: set}, fmt.Errorf("append lines after %v: got cursor %v: %w", last, a.Cursor, feed.ErrUnknown)
			}
			if err == nil {
				last = a.Cursor
				receipt.Add(feed.NewReceipt(set, a.Cursor, a.Count, a.Replayed), lines.line)
			}
		}
		in.releaseBatch()
		if err != nil {
			p := *problem.From(err)
			p.Accepted = &feed.Progress{Count: receipt.Count, Line: receipt.Line, Cursor: receipt.Cursor}
			return nil, &p
		}
	}
	if receipt.Count == 0 {
		err := errNoChanges()
		h.metrics.countPublish(changelog.Appended{}, err, 0)
		return nil, err
	}
	return receipt, nil
}

// A lineReader divides a stream into batches.
type lineReader struct {
	set      string
	in       *intake
	lines    *resourcesync.NDJSONReader
	maxBytes int64                // maximum bytes of the lines of a batch
	sum      hash.Hash            // hash of the lines of a batch; nil if the publish has no key
	next     *resourcesync.Change // change that was read ahead and not yet added to a batch; nil if none
	err      error                // error of the last read; it persists
	line     int                  // line number of the last change in a batch
	entries  int                  // number of changes read
}

// readBatch reads and validates the lines up to number end. It does not wait for the line
// after them, unless line end is blank.
func (r *lineReader) readBatch(end int) (p changelog.Publish, err error) {
	if r.sum != nil {
		r.sum.Reset()
	}
	size, memory := int64(0), int64(0)
	defer func() { r.in.charge(len(p.Changes)) }()
	for r.line < end {
		if r.next == nil && r.err == nil {
			r.next, r.err = r.lines.Next()
			r.in.source.resetRate()
		}
		if r.err == io.EOF || r.lines.Line() > end {
			break
		}
		r.entries++
		if r.err != nil {
			if _, ok := errors.AsType[*resourcesync.Error](r.err); !ok { // not an error of a line
				return p, problem.BodyError(r.err)
			}
			return p, r.appendErrors(r.locate(r.err), end)
		}
		r.line = r.lines.Line()
		line := r.lines.Bytes()
		if size += int64(len(line)); size > r.maxBytes {
			return p, r.locate(&resourcesync.Error{Err: resourcesync.ErrTooLarge,
				Msg: fmt.Sprintf("a batch of %d lines is larger than %d bytes", linesPerBatch, r.maxBytes)})
		}
		if r.sum != nil {
			r.sum.Write(line)
			r.sum.Write(lineEnd)
		}
		if err := r.checkChange(r.next); err != nil {
			return p, r.appendErrors(r.locate(err), end)
		}
		memory += r.next.Memory()
		if err := r.in.reserve(memory); err != nil {
			return p, r.locate(err)
		}
		if n := len(p.Changes); n == cap(p.Changes) { // grow early: append would copy most of the changes twice
			p.Changes = slices.Grow(p.Changes, min(3*n+1, linesPerBatch))
		}
		p.Changes = append(p.Changes, *r.next)
		r.next = nil
	}
	if r.sum != nil {
		r.sum.Sum(p.Hash[:0])
	}
	return p, nil
}

var lineEnd = []byte{'\n'}

// checkChange returns an error if a change is invalid or the set does not accept it.
func (r *lineReader) checkChange(c *resourcesync.Change) error {
	if err := c.Validate(); err != nil {
		return err
	}
	if err := checkCapability(r.set, c); err != nil {
		return err
	}
	return nil
}

// appendErrors adds to the error of a line the errors of later lines of the batch that have
// already arrived. It does not wait for more lines.
func (r *lineReader) appendErrors(err error, end int) error {
	lineErr, ok := errors.AsType[*resourcesync.Error](err)
	for ok && len(lineErr.More)+1 < resourcesync.MaxErrors && r.lines.Resume() {
		c, err := r.lines.Next()
		if r.lines.Line() > end {
			break
		}
		r.entries++
		if err == nil {
			err = r.checkChange(c)
		}
		next, isLineErr := errors.AsType[*resourcesync.Error](r.locate(err))
		if isLineErr {
			lineErr.More = append(lineErr.More, next)
		} else if err != nil {
			break
		}
	}
	return err
}

// locate sets the entry and line number of an error that is about a change.
func (r *lineReader) locate(err error) error {
	if e, ok := errors.AsType[*resourcesync.Error](err); ok {
		e.Entry, e.Line = r.entries, r.lines.Line()
	}
	return err
}
