package fetch

import (
	"context"
	"errors"
	"io"
)

// unpack takes the content from a package. If that content is wrong, unpack empties the
// file and returns nil without an error. Any error is one of the file, or ctx's.
func (g *getting) unpack(ctx context.Context) (*Got, error) {
	if err := take(ctx, g.hosts.total); err != nil {
		return nil, err
	}
	defer func() { <-g.hosts.total }()
	g.Part = nil
	if err := g.clear(); err != nil {
		return nil, err
	}
	most := g.opts.MaxSize
	if n := g.Change.Length; n != nil {
		most = *n
	}
	in, err := g.Packed()
	if err == nil {
		_, err = io.Copy(&g.body, io.LimitReader(while{ctx, in}, most+1))
		_ = in.Close() // it was only read
	}
	if d, ok := errors.AsType[*diskError](err); ok {
		return nil, d.err
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil || g.Size() > most || g.Check(g.Change.Length) != nil {
		return nil, g.clear()
	}
	return &Got{Size: g.Size(), SHA256: g.SHA256()}, nil
}

// A while is a reader that ends when ctx is done.
type while struct {
	ctx context.Context
	io.Reader
}

func (w while) Read(b []byte) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	return w.Reader.Read(b)
}
