package access

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync/atomic"

	"github.com/rshub/rshub/internal/reread"
)

// A TokensFile is an Authenticator that reloads its tokens when their file changes. If the new file
// cannot be read or is invalid, the previous tokens stay in force.
type TokensFile struct {
	path     string
	document reread.Document
	tokens   atomic.Pointer[Tokens]
	version  atomic.Uint64
	sum      [sha256.Size]byte // digest of the text of the file; used only by read
}

var _ Authenticator = (*TokensFile)(nil)

// OpenTokensFile reads the tokens file at path. Later changes are noticed only while Watch runs.
func OpenTokensFile(path string, log *slog.Logger) (*TokensFile, error) {
	f := &TokensFile{path: path}
	f.document = reread.Document{What: "the tokens file", Log: log, Read: f.read}
	if _, err := f.document.Load(context.Background()); err != nil {
		return nil, err
	}
	return f, nil
}

// Watch reloads the file whenever it changes. It blocks until ctx is done.
func (f *TokensFile) Watch(ctx context.Context) { f.document.Watch(ctx) }

// read reads the file, and reports whether the tokens changed.
func (f *TokensFile) read(context.Context) (changed bool, err error) {
	text, err := os.ReadFile(f.path)
	if err != nil {
		return false, fmt.Errorf("read tokens: %w", err)
	}
	sum := sha256.Sum256(text)
	if f.tokens.Load() != nil && sum == f.sum {
		return false, nil // unchanged
	}
	tokens, err := ReadTokens(bytes.NewReader(text))
	if err != nil {
		return false, fmt.Errorf("read tokens from %s: %w", f.path, err)
	}
	f.sum = sum
	f.tokens.Store(tokens)
	f.version.Add(1)
	return true, nil
}

// Err returns why the current file is not in force, or nil if it is.
func (f *TokensFile) Err() error { return f.document.Err() }

// Version returns how many times the tokens have changed. An invalid file or one with the same text
// does not count.
func (f *TokensFile) Version() uint64 { return f.version.Load() }

// Anyone returns the rights of callers without a token.
func (f *TokensFile) Anyone() Rights { return f.tokens.Load().anyone }

// Caller returns the caller with the bearer token of r. A request without a token gets the rights
// of Anyone. An unknown token is refused even if no token is needed; otherwise its owner would not
// notice the mistake. Caller looks up the digest in a map instead of comparing tokens, so its
// duration reveals nothing about other tokens.
func (f *TokensFile) Caller(r *http.Request) (Caller, error) {
	token, err := BearerToken(r)
	if err != nil {
		return Caller{}, err
	}
	if token == "" {
		return f.anonymous()
	}
	return f.caller(sha256.Sum256([]byte(token)))
}

// CallerByName returns the caller with a name in the current file. See Authenticator.
func (f *TokensFile) CallerByName(name, key string) (Caller, bool) {
	return f.tokens.Load().CallerByName(name, key)
}

func (f *TokensFile) anonymous() (Caller, error) {
	c := f.tokens.Load().anonymous()
	c.refresh = f.anonymous
	return c, nil
}

func (f *TokensFile) caller(digest [sha256.Size]byte) (Caller, error) {
	c, err := f.tokens.Load().caller(digest)
	c.refresh = func() (Caller, error) { return f.caller(digest) }
	return c, err
}
