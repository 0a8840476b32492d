package hub

import (
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/rshub/rshub/access"
	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/problem"
	"github.com/rshub/rshub/resourcesync"
)

// body returns the request's body, limited in size and unpacked. A stream has
// no limit for the whole; receiveLines limits its parts.
func (h *Hub) body(w http.ResponseWriter, r *http.Request, patient *patientReader, stream bool) (io.Reader, error) {
	var body io.ReadCloser = patient
	if !stream {
		body = http.MaxBytesReader(w, body, h.opts.MaxBody)
	}
	switch e := strings.ToLower(strings.TrimSpace(r.Header.Get("Content-Encoding"))); e {
	case "", "identity":
		return body, nil
	case "gzip", "x-gzip":
		z, err := gzip.NewReader(body)
		if err != nil {
			return nil, problem.Unreadable(err)
		}
		return unpacking{z}, nil
	default:
		return nil, h.unsupported(fmt.Sprintf("the Content-Encoding is %q; send gzip or none", e))
	}
}

// unpacking is a gzip reader whose error says so when the body was cut off.
type unpacking struct{ *gzip.Reader }

func (u unpacking) Read(b []byte) (int, error) {
	n, err := u.Reader.Read(b)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = resourcesync.Invalid("the gzip of the body ends early: a part of it is missing at its end")
	}
	return n, err
}

// idempotencyKey returns the client's own key, which may be a plain text or a
// quoted string.
func (h *Hub) idempotencyKey(r *http.Request) (string, error) {
	values := r.Header.Values("Idempotency-Key")
	if len(values) == 0 {
		return "", nil
	}
	key := strings.TrimSpace(values[0])
	if len(key) >= 2 && key[0] == '"' && key[len(key)-1] == '"' {
		key = key[1 : len(key)-1]
	}
	if len(values) > 1 || key == "" || len(key) > changelog.MaxKey {
		return "", resourcesync.Invalid("Idempotency-Key is one text of 1 to %d bytes", changelog.MaxKey)
	}
	return key, nil
}

// A client's key names one publish, as a document or as a stream. The memory knows a
// document by documentKey, and each batch of a stream by linesKey. A document is
// refused if the memory knows the first batch of a stream with the same key, and the
// other way round.
func (h *Hub) documentKey(ctx context.Context, key string) string {
	return h.callerKey(ctx, "document", key)
}

// linesKey returns the key of batch i of a stream, from 1.
func (h *Hub) linesKey(ctx context.Context, key string, i int) string {
	return h.callerKey(ctx, "lines", key, strconv.Itoa(i))
}

// callerKey makes a key that no other caller can make. It is a digest, so its
// length does not depend on the client. Neither a header nor a caller's name
// can contain a NUL, so different parts never give the same text.
func (h *Hub) callerKey(ctx context.Context, parts ...string) string {
	sum := sha256.Sum256([]byte(access.FromContext(ctx).Name + "\x00" + strings.Join(parts, "\x00")))
	return string(sum[:])
}
