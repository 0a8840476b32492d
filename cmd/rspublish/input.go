package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"

	"github.com/rshub/rshub/internal/gunzip"
	"github.com/rshub/rshub/resourcesync"
)

// An input is a sequence of changes from a regular file, which can be read twice, from a stream,
// or from the command line.
type input struct {
	name    string
	file    *os.File // regular file; nil for other inputs
	size    int64    // size of file when it was opened; later bytes are not read
	stream  io.Reader
	changes []resourcesync.Change

	sum   []byte // digest of file, set by check
	total int    // number of changes; -1 if unknown
}

// An entry is a change with its position in the input.
type entry struct {
	change *resourcesync.Change
	number int // number of the change, starting at 1
	line   int // line of the change, starting at 1; zero if the format has no lines
}

// openInput opens a file, or returns standard input if name is "-".
func openInput(ctx context.Context, name string, stdin io.Reader) (*input, error) {
	if name == "-" {
		return &input{name: "standard input", stream: interruptibleReader(ctx, stdin), total: -1}, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case info.IsDir():
		err = fmt.Errorf("%s is a directory", name)
	case info.Mode().IsRegular():
		return &input{name: name, file: f, size: info.Size(), total: -1}, nil
	default: // a named pipe, or the shell's <(command)
		return &input{name: name, stream: interruptibleReader(ctx, f), total: -1}, nil
	}
	f.Close()
	return nil, err
}

func (in *input) close() {
	if in.file != nil {
		in.file.Close()
	}
}

// interruptibleReader returns a reader of r whose Read returns when ctx is canceled. A read from
// a terminal or a pipe cannot be interrupted, so a goroutine reads from r. After ctx is canceled,
// the goroutine may stay blocked in a read until the process exits.
func interruptibleReader(ctx context.Context, r io.Reader) io.Reader {
	pr, pw := io.Pipe()
	context.AfterFunc(ctx, func() { pr.CloseWithError(ctx.Err()) })
	go func() {
		_, err := io.Copy(pw, r)
		pw.CloseWithError(err)
	}()
	return pr
}

// check reads the input to its end and validates every change. It sets total and sum, and calls
// report with the number of changes so far.
func (in *input) check(ctx context.Context, report func(changes int)) error {
	sum := sha256.New()
	n := 0
	for e, err := range in.read(ctx, sum) {
		if err != nil {
			return err
		}
		n = e.number
		report(n)
	}
	in.total = n
	in.sum = sum.Sum(nil)
	return nil
}

// read yields the changes of the input from its start, which are all valid. An error ends the
// sequence. read writes the bytes of a file to sum.
func (in *input) read(ctx context.Context, sum io.Writer) iter.Seq2[entry, error] {
	return func(yield func(entry, error) bool) {
		raw := in.stream
		if in.file != nil {
			raw = io.TeeReader(io.NewSectionReader(in.file, 0, in.size), sum)
		}
		for e, err := range in.decode(raw) {
			if err == nil && e.number%1000 == 0 {
				err = ctx.Err()
			}
			if err != nil {
				yield(entry{}, fmt.Errorf("%s: %w", in.name, err))
				return
			}
			if !yield(e, nil) {
				return
			}
		}
		if in.file == nil {
			return
		}
		// The digest includes bytes after the end of the document.
		if _, err := io.Copy(io.Discard, raw); err != nil {
			yield(entry{}, fmt.Errorf("%s: %w", in.name, err))
		}
	}
}

// decode yields the changes in raw, or those from the command line.
func (in *input) decode(raw io.Reader) iter.Seq2[entry, error] {
	if in.changes != nil {
		return validateAll(sliceReader(in.changes))
	}
	next, err := newChangeReader(raw)
	if err != nil {
		next = func() (*resourcesync.Change, int, error) { return nil, 0, err }
	}
	return validateAll(next)
}

// A changeReader returns the next change and its line, or io.EOF. The line is zero if unknown.
type changeReader func() (*resourcesync.Change, int, error)

// validateAll yields the changes that next returns up to the first invalid one. Its
// *resourcesync.Error has its entry and line, and the errors of later changes.
func validateAll(next changeReader) iter.Seq2[entry, error] {
	return func(yield func(entry, error) bool) {
		for n := 1; ; n++ {
			c, line, err := next()
			if err == io.EOF {
				return
			}
			if err = validateChange(c, n, line, err); err != nil {
				err = next.addLaterErrors(n, err)
			}
			if !yield(entry{c, n, line}, err) || err != nil {
				return
			}
		}
	}
}

// validateChange returns err, or the error of validating c if err is nil, with entry n and line.
func validateChange(c *resourcesync.Change, n, line int, err error) error {
	if err == nil {
		err = c.Validate()
	}
	if e, ok := errors.AsType[*resourcesync.Error](err); ok && (c != nil || line > 0) {
		e.Entry, e.Line = n, line // otherwise set by the reader
	}
	return err
}

// maxLookahead is the maximum number of changes after an invalid one that are validated to report
// more errors at once.
const maxLookahead = 10_000

// addLaterErrors adds the errors of later changes to err, which is the error of change number n.
func (next changeReader) addLaterErrors(n int, err error) error {
	first, ok := errors.AsType[*resourcesync.Error](err)
	if !ok || !errors.Is(first, resourcesync.ErrInvalid) {
		return err
	}
	last := first
	for i := n + 1; i < n+maxLookahead && len(first.More)+1 < resourcesync.MaxErrors; i++ {
		c, line, err := next()
		if e, ok := errors.AsType[*resourcesync.Error](err); err != nil && (!ok || e == last) { // the reader cannot continue
			break
		}
		if e, ok := errors.AsType[*resourcesync.Error](validateChange(c, i, line, err)); ok {
			first.More = append(first.More, e)
			last = e
		}
	}
	return err
}

// newChangeReader returns a reader of the changes in r. It detects the format by content: XML,
// JSON or NDJSON, plain or gzipped, with or without a byte order mark.
func newChangeReader(r io.Reader) (changeReader, error) {
	in, err := decompress(r)
	if err != nil {
		return nil, err
	}
	if bom, _ := in.Peek(3); string(bom) == "\uFEFF" {
		_, _ = in.Discard(3)
	}
	first, err := firstByte(in)
	switch {
	case err == io.EOF: // an empty input is NDJSON without changes
		return sliceReader(nil), nil
	case err != nil:
		return nil, err
	case first == '<':
		return xmlReader(in)
	case first == '{':
		// isDocument may read a whole change. The limit is the maximum length of an NDJSON
		// line, so every change that can be published fits. The bytes that isDocument has
		// read are read again from head.
		var head bytes.Buffer
		document := isDocument(io.TeeReader(io.LimitReader(in, 1<<20), &head))
		all := io.MultiReader(&head, in)
		if document {
			return jsonReader(all)
		}
		return ndjsonReader(all), nil
	}
	return nil, &resourcesync.Error{Err: resourcesync.ErrInvalid, Line: 1,
		Msg: fmt.Sprintf(`input starts with %q; want XML, a JSON object with "changes", or NDJSON`, first)}
}

const peekSize = 64 << 10

// decompress returns a reader of r, which decompresses gzip.
func decompress(r io.Reader) (*bufio.Reader, error) {
	in := bufio.NewReaderSize(r, peekSize)
	if header, _ := in.Peek(2); !gunzip.IsGzip(header) {
		return in, nil
	}
	z, err := gunzip.NewReader(in)
	if err != nil {
		return nil, err
	}
	return bufio.NewReaderSize(z, peekSize), nil
}

// firstByte returns the first byte that is not white space. It consumes nothing, so that lines
// can be counted later.
func firstByte(in *bufio.Reader) (byte, error) {
	for n := 1; n <= peekSize; n++ {
		b, err := in.Peek(n)
		if err != nil {
			return 0, err
		}
		switch c := b[n-1]; c {
		case ' ', '\t', '\r', '\n':
		default:
			return c, nil
		}
	}
	return 0, &resourcesync.Error{Err: resourcesync.ErrInvalid, Msg: "input starts with 64 KiB of white space"}
}

// isDocument reports whether the first object in r is a document, which has the member "changes",
// rather than a change, which has "loc" or "change". The first of these members decides, so
// isDocument does not read a large document to its end.
func isDocument(r io.Reader) bool {
	dec := json.NewDecoder(r)
	if _, err := dec.Token(); err != nil {
		return false
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return false
		}
		switch name {
		case "changes":
			return true
		case "loc", "change":
			return false
		}
		var value json.RawMessage
		if dec.Decode(&value) != nil {
			return false
		}
	}
	return false
}

func xmlReader(r io.Reader) (changeReader, error) {
	in := resourcesync.NewXMLReader(r, resourcesync.Limits{})
	header, err := in.Header()
	if err != nil {
		return nil, err
	}
	if err := checkPublishable(&header); err != nil {
		return nil, err
	}
	return func() (*resourcesync.Change, int, error) {
		it, err := in.Next()
		if err != nil {
			in.SkipInvalid()
			return nil, 0, err
		}
		return &it.Change, 0, nil
	}, nil
}

func jsonReader(r io.Reader) (changeReader, error) {
	doc, err := resourcesync.ReadJSON(r, resourcesync.Limits{Check: (*resourcesync.Change).Validate})
	if doc != nil {
		if err := checkPublishable(&doc.Header); err != nil {
			return nil, err
		}
	}
	if err != nil {
		return nil, err
	}
	changes := make([]resourcesync.Change, len(doc.Items))
	for i := range doc.Items {
		changes[i] = doc.Items[i].Change
	}
	return sliceReader(changes), nil
}

// checkPublishable returns an error unless h is the header of a document with changes.
func checkPublishable(h *resourcesync.Header) error {
	if h.ListsChanges() {
		return nil
	}
	reason := fmt.Sprintf("its capability is %q", h.Capability)
	if h.Index {
		reason = "it is an index"
	}
	return &resourcesync.Error{Err: resourcesync.ErrInvalid,
		Msg: "document is not a list of changes: " + reason + "; want a change notification or a change list"}
}

func ndjsonReader(r io.Reader) changeReader {
	in := resourcesync.NewNDJSONReader(r, resourcesync.Limits{})
	return func() (*resourcesync.Change, int, error) {
		c, err := in.Next()
		line := in.Line()
		if err != nil {
			in.Resume()
		}
		return c, line, err
	}
}

func sliceReader(changes []resourcesync.Change) changeReader {
	return func() (*resourcesync.Change, int, error) {
		if len(changes) == 0 {
			return nil, 0, io.EOF
		}
		c := &changes[0]
		changes = changes[1:]
		return c, 0, nil
	}
}
