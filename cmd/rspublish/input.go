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

// An input is a source of changes. It is one of three: a file, which can be read twice;
// a stream; or changes given on the command line.
type input struct {
	name    string
	file    *os.File // a regular file
	size    int64    // of file when it was opened; bytes that are appended later are not read
	stream  io.Reader
	changes []resourcesync.Change

	sum   []byte // digest of the bytes of file; check sets it
	total int    // number of changes; -1 while unknown
}

// An entry is a change and where it is in the input.
type entry struct {
	change *resourcesync.Change
	number int // number of the change, from 1
	line   int // line of the change, from 1; 0 if the format has no lines
}

// openInput opens a file, or takes standard input.
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

// interruptibleReader returns a reader of r whose Read returns when ctx is done. A read from a
// terminal or a pipe cannot be interrupted. So a goroutine does these reads, and after
// ctx is done it stays blocked in one until the process ends.
func interruptibleReader(ctx context.Context, r io.Reader) io.Reader {
	pr, pw := io.Pipe()
	context.AfterFunc(ctx, func() { pr.CloseWithError(ctx.Err()) })
	go func() {
		_, err := io.Copy(pw, r)
		pw.CloseWithError(err)
	}()
	return pr
}

// check reads the input to its end and checks every change. It sets total and sum. It
// calls seen with the number of changes so far.
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

// read yields the input's changes from its beginning. Each of them is valid. After an
// error it yields nothing more. It writes the bytes of a file to sum.
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
		// The sum is of all bytes, also of those behind the end of the document.
		if _, err := io.Copy(io.Discard, raw); err != nil {
			yield(entry{}, fmt.Errorf("%s: %w", in.name, err))
		}
	}
}

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

// A changeReader returns the next change and its line, or io.EOF. The line is 0 if it is not
// known.
type changeReader func() (*resourcesync.Change, int, error)

// validateAll yields the changes that next returns, until one is not valid. The
// *resourcesync.Error for that one names its entry and line, and the mistakes in
// later changes.
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

// validateChange returns the error of change number n. err is the error of reading it, or nil.
func validateChange(c *resourcesync.Change, n, line int, err error) error {
	if err == nil {
		err = c.Validate()
	}
	if e, ok := errors.AsType[*resourcesync.Error](err); ok && (c != nil || line > 0) {
		e.Entry, e.Line = n, line // otherwise the reader has set them
	}
	return err
}

// maxLookahead is how many changes after a wrong one are checked for further
// mistakes.
const maxLookahead = 10_000

// addLaterErrors adds to the error of change number n the errors of later changes.
func (next changeReader) addLaterErrors(n int, err error) error {
	first, ok := errors.AsType[*resourcesync.Error](err)
	if !ok || !errors.Is(first, resourcesync.ErrInvalid) {
		return err
	}
	last := first
	for i := n + 1; i < n+maxLookahead && len(first.More)+1 < resourcesync.MaxErrors; i++ {
		c, line, err := next()
		if e, ok := errors.AsType[*resourcesync.Error](err); err != nil && (!ok || e == last) { // the reader cannot go on
			break
		}
		if e, ok := errors.AsType[*resourcesync.Error](validateChange(c, i, line, err)); ok {
			first.More = append(first.More, e)
			last = e
		}
	}
	return err
}

// newChangeReader finds out what r holds: XML, JSON or NDJSON, gzipped or not, with or without a
// byte order mark. Only the content decides.
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
		// isDocument may have to read a whole change. The limit is the largest line of
		// NDJSON, so every change that can be published fits. The bytes that isDocument
		// has read are then read again from seen.
		var head bytes.Buffer
		document := isDocument(io.TeeReader(io.LimitReader(in, 1<<20), &head))
		all := io.MultiReader(&head, in)
		if document {
			return jsonReader(all)
		}
		return ndjsonReader(all), nil
	}
	return nil, &resourcesync.Error{Err: resourcesync.ErrInvalid, Line: 1,
		Rule: fmt.Sprintf(`it begins with %q: it is neither XML, nor a JSON object with "changes", nor NDJSON`, first)}
}

const peekSize = 64 << 10

// decompress returns the content of r, decompressed if it is gzip.
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

// firstByte returns the first byte that is not white space. It consumes nothing, so
// that lines can be counted later.
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
	return 0, &resourcesync.Error{Err: resourcesync.ErrInvalid, Rule: "it begins with nothing but white space"}
}

// isDocument reports whether the first object in r is a document, which has the member
// "changes". Else it is a change, which has "loc" or "change". The first of these
// members decides, so isDocument need not read a large document.
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
			in.Skip()
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

// checkPublishable returns nil if a document holds changes.
func checkPublishable(h *resourcesync.Header) error {
	if h.IsChanges() {
		return nil
	}
	reason := fmt.Sprintf("its capability is %q", h.Capability)
	if h.Index {
		reason = "it is an index"
	}
	return &resourcesync.Error{Err: resourcesync.ErrInvalid,
		Rule: "the document holds no changes, " + reason + ": publish a change notification or a change list"}
}

func ndjsonReader(r io.Reader) changeReader {
	in := resourcesync.NewNDJSONReader(r, resourcesync.Limits{})
	return func() (*resourcesync.Change, int, error) {
		c, err := in.Next()
		line := in.Line()
		if err != nil {
			in.More()
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
