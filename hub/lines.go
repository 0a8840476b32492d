package hub

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/resourcesync"
)

// Of an NDJSON stream.
const (
	linesPerBatch = 1000
	maxLine       = 1 << 20 // bytes
)

// receiveLines appends a stream of one change a line, in batches of 1,000 lines
// (blank ones count, so that the cut depends on nothing else). Each batch is
// taken whole or not at all, with the key and its number as its key, so the
// whole stream sent again with its key adds only what is missing. An error is a
// *changelog.Problem that says what was accepted.
func (h *Hub) receiveLines(ctx context.Context, set, key string, body io.Reader) (*Receipt, error) {
	in := lineReader{r: resourcesync.NewNDJSONReader(body, resourcesync.Limits{Bytes: maxLine}), maxBytes: h.opts.MaxBody}
	all := &Receipt{Set: set}
	for i := 1; in.err != io.EOF; i++ {
		p, err := in.batch(i * linesPerBatch)
		if err != nil {
			h.metrics.published(changelog.Appended{}, err, 0)
		} else if len(p.Changes) > 0 {
			if key != "" {
				p.Key = h.callerKey(ctx, "lines", key, strconv.Itoa(i))
			}
			var a changelog.Appended
			if a, err = h.Publish(ctx, set, p); err == nil {
				all.add(newReceipt(set, a), in.line)
			}
		}
		if err != nil {
			problem := *changelog.NewProblem(err)
			problem.Accepted = &changelog.Accepted{Count: all.Count, Line: all.Line, Cursor: all.Cursor}
			return nil, &problem
		}
	}
	if all.Count == 0 {
		err := noChange()
		h.metrics.published(changelog.Appended{}, err, 0)
		return nil, err
	}
	return all, nil
}

// add adds the receipt of the next batch, which ends with a line.
func (r *Receipt) add(next *Receipt, line int) {
	if r.Count > 0 {
		next.First = r.First
		next.Count += r.Count
		next.Replayed = next.Replayed && r.Replayed
	}
	*r = *next
	r.Line = line
}

// A lineReader cuts a stream into batches.
type lineReader struct {
	r        *resourcesync.NDJSONReader
	maxBytes int64                // of a batch's lines
	held     *resourcesync.Change // read, and of the next batch
	err      error                // of reading; final
	line     int                  // of the last change that is in a batch
	entry    int                  // how many are
}

// batch reads and validates the lines up to number end. It does not wait for
// what is behind them, unless line end is blank.
func (in *lineReader) batch(end int) (p changelog.Publish, err error) {
	sum := sha256.New()
	size := int64(0)
	for in.line < end {
		if in.held == nil && in.err == nil {
			in.held, in.err = in.r.Next()
		}
		if in.err == io.EOF || in.r.Line() > end {
			break
		}
		in.entry++
		if in.err != nil {
			return p, in.place(readError(in.err))
		}
		in.line = in.r.Line()
		line := in.r.Bytes()
		if size += int64(len(line)); size > in.maxBytes {
			return p, in.place(&resourcesync.Error{Err: resourcesync.ErrTooLarge,
				Rule: fmt.Sprintf("%d lines are one batch, and together larger than %d bytes", linesPerBatch, in.maxBytes)})
		}
		sum.Write(line)
		sum.Write([]byte{'\n'})
		if err := in.held.Validate(); err != nil {
			return p, in.place(err)
		}
		p.Changes = append(p.Changes, *in.held)
		in.held = nil
	}
	p.Hash = [32]byte(sum.Sum(nil))
	return p, nil
}

// place names the line and the entry that an error is about.
func (in *lineReader) place(err error) error {
	if e, ok := errors.AsType[*resourcesync.Error](err); ok {
		e.Entry, e.Line = in.entry, in.r.Line()
	}
	return err
}
