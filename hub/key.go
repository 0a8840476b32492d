package hub

import (
	"context"
	"crypto/sha256"
	"net/http"
	"strconv"
	"strings"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/internal/access"
	"github.com/rshub/rshub/resourcesync"
)

// idempotencyKey returns the client's Idempotency-Key, which may be a quoted string or plain
// text, or "" if there is none.
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
		return "", resourcesync.Invalidf("invalid Idempotency-Key: want one value of 1 to %d bytes", changelog.MaxKey)
	}
	return key, nil
}

// documentKey returns the key under which the memory stores a document with a client's key.
//
// A client's key names one publish, either a document or a stream. The memory knows a document
// by documentKey, and each batch of a stream by linesKey. A document is refused if the memory
// knows the first batch of a stream with the same key, and vice versa.
func (h *Hub) documentKey(ctx context.Context, key string) string {
	return h.callerKey(ctx, "document", key)
}

// linesKey returns the key of batch i of a stream, counted from 1. after is the cursor of the
// previous batch, empty for the first.
//
// The keys form a chain, because each key expires on its own, oldest first. When a client
// resends a stream, batches are replayed up to the first one whose key has expired. That batch
// is appended again and gets a new cursor, so the keys of all later batches are new as well.
// If the keys did not depend on the cursor, the later batches would be replayed, and the log
// would have an earlier batch after them.
func (h *Hub) linesKey(ctx context.Context, key string, i int, after string) string {
	if i == 1 {
		return h.callerKey(ctx, "lines", key, "1")
	}
	return h.callerKey(ctx, "lines", key, strconv.Itoa(i), after)
}

// callerKey returns a key that no other caller can produce. It is a digest, so its length does
// not depend on the client. Neither a header nor a caller's name can contain a NUL byte, so
// different parts never yield the same input.
func (h *Hub) callerKey(ctx context.Context, parts ...string) string {
	sum := sha256.Sum256([]byte(access.FromContext(ctx).Name + "\x00" + strings.Join(parts, "\x00")))
	return string(sum[:])
}
