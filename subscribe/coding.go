package subscribe

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"slices"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/feed/compressed"
	"github.com/rshub/rshub/internal/accept"
	"github.com/rshub/rshub/internal/budget"
)

// A coding is a content coding of pages and event streams (RFC 9110 section 8.4.1).
type coding struct {
	name   string                        // in Content-Encoding; empty: none
	head   []byte                        // what an answer begins with
	pack   func(dst, text []byte) []byte // appends a part of an event stream; a client can read it as soon as it comes
	events *feed.Format                  // events as an event stream over HTTP/1.1 gets them
}

// The codings. An event is compressed as a frame of its own, so that all streams share
// these bytes. One frame for a whole stream would be smaller, but would take a compressor
// for each stream, with a megabyte of memory.
var (
	plain = newCoding("", func(dst, text []byte) []byte { return append(dst, text...) })
	zstd  = newCoding(compressed.Zstd, compressed.Append)
	dcz   = newCoding(compressed.DCZ, compressed.AppendWithDictionary)
)

func newCoding(name string, pack func(dst, text []byte) []byte) *coding {
	return &coding{name: name, head: compressed.Head(name), pack: pack, events: eventChunks(pack)}
}

// coding returns the coding that r prefers for a page, which is one frame.
func (s *Server) coding(h http.Header) *coding {
	return s.choose(h, compressed.DCZ, compressed.Zstd)
}

// streamCoding returns the coding that r prefers for an event stream. Many clients name all
// codings that they know, and then read only the first frame of a stream. So an event
// stream is compressed only for a client that prefers that to gzip, in which there is none.
func (s *Server) streamCoding(h http.Header) *coding {
	return s.choose(h, "gzip", compressed.DCZ, compressed.Zstd)
}

func (s *Server) choose(h http.Header, offers ...string) *coding {
	if !slices.ContainsFunc(h.Values("Available-Dictionary"), compressed.HasDictionary) {
		offers = slices.DeleteFunc(offers, func(name string) bool { return name == compressed.DCZ })
	}
	switch accept.Coding(h, offers...) {
	case compressed.DCZ:
		return dcz
	case compressed.Zstd:
		return zstd
	}
	return plain
}

// announce says in the header of an answer how it is coded. It comes after the last error
// that may still be answered, because that answer is plain. A client that could read the
// coding dcz, but has not the dictionary, is told where it is (RFC 9842 section 3).
func (s *Server) announce(w http.ResponseWriter, r *http.Request, c *coding) {
	h := w.Header()
	if c.name != "" {
		h.Set("Content-Encoding", c.name)
	}
	if c != dcz && accept.Coding(r.Header, compressed.DCZ) != "" {
		h.Add("Link", "<"+s.opts.Base.Dictionary(compressed.Name())+`>; rel="compression-dictionary"`)
	}
}

// writer returns a writer of a whole answer to w. The caller must call Close, once.
func (c *coding) writer(w *bytes.Buffer) io.WriteCloser {
	if c == plain {
		return nopCloser{w}
	}
	w.Write(c.head)
	return compressed.NewWriter(w, c == dcz)
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// zip returns the text of a page, of length bytes, compressed. What it holds is in the
// share, which the caller releases. The page's own text is dropped: other than a plain
// page, a compressed one cannot be made again from the middle for a slow client. So it is
// an answer that is held while its client takes it.
func (s *Server) zip(ctx context.Context, p *page, c *coding, length int) ([]byte, *budget.Share, error) {
	share, err := s.opts.Streams.Take(ctx, int64(length))
	if err != nil {
		return nil, nil, err
	}
	defer p.release()
	var zipped bytes.Buffer
	w := c.writer(&zipped)
	for i := range p.pieces {
		_, _ = w.Write(p.pieces[i].text) // to memory
	}
	_ = w.Close()
	share.Keep(int64(zipped.Len()))
	return zipped.Bytes(), share, nil
}
