package fetch

import (
	"context"
	"errors"
	"io"
)

// readPacked reads the content from a package. If that content is wrong, readPacked empties the
// file and returns nil without an error. Any error is an error of the file or of ctx.
func (g *transfer) readPacked(ctx context.Context) (*Result, error) {
	if err := acquireSlot(ctx, g.hosts.total); err != nil {
		return nil, err
	}
	defer func() { <-g.hosts.total }()
	g.Part = nil
	if err := g.truncate(); err != nil {
		return nil, err
	}
	limit := g.opts.MaxSize
	if n := g.Change.Length; n != nil {
		limit = *n
	}
	in, err := g.Packed()
	if err == nil {
		_, err = io.Copy(&g.body, io.LimitReader(contextReader{ctx, in}, limit+1))
		_ = in.Close() // opened only for reading
	}
	if d, ok := errors.AsType[*diskError](err); ok {
		return nil, d.err
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil || g.Size() > limit || g.Check(g.Change.Length) != nil {
		return nil, g.truncate()
	}
	return &Result{Size: g.Size(), SHA256: g.SHA256()}, nil
}

// A contextReader is a reader that fails when ctx is canceled.
type contextReader struct {
	ctx context.Context
	io.Reader
}

func (w contextReader) Read(b []byte) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	return w.Reader.Read(b)
}
