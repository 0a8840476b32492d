package access

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// lookEvery is how often a TokensFile looks whether the file has changed.
const lookEvery = 2 * time.Second

// A TokensFile is an Authenticator that reads its tokens anew when their file changes. A
// file that cannot be read, or has a mistake, leaves the tokens before it in force.
type TokensFile struct {
	path    string
	log     *slog.Logger
	tokens  atomic.Pointer[Tokens]
	version atomic.Uint64

	mu  sync.Mutex
	err error // why the file as it is now is not in force

	// Only the goroutine of Watch uses these.
	info fs.FileInfo // of the file when it was looked at
	text [sha256.Size]byte
}

var _ Authenticator = (*TokensFile)(nil)

// OpenTokensFile reads the tokens file at path. Later changes are seen once Watch runs.
func OpenTokensFile(path string, log *slog.Logger) (*TokensFile, error) {
	f := &TokensFile{path: path, log: log}
	if _, err := f.look(); err != nil {
		return nil, err
	}
	return f, nil
}

// Watch reads the file anew when it changes, until ctx is done.
func (f *TokensFile) Watch(ctx context.Context) {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		changed, err := f.look()
		f.mu.Lock()
		before := f.err
		f.err = err
		f.mu.Unlock()
		switch {
		case err != nil && (before == nil || before.Error() != err.Error()):
			f.log.Error("the tokens file cannot be used; the tokens that were read before stay in force", "err", err)
		case err == nil && changed:
			f.log.Info("the tokens file was read again", "tokens", f.tokens.Load().Len())
		case err == nil && before != nil:
			f.log.Info("the tokens file can be used again; it is the same as before")
		}
	}
}

// look reads the file if it has changed. It reports whether there are other tokens now.
func (f *TokensFile) look() (changed bool, err error) {
	info, err := os.Stat(f.path)
	if err != nil {
		f.info = nil
		return false, fmt.Errorf("read tokens: %w", err)
	}
	if f.info != nil && os.SameFile(f.info, info) && f.info.Size() == info.Size() && f.info.ModTime().Equal(info.ModTime()) {
		return false, f.Err()
	}
	text, err := os.ReadFile(f.path)
	if err != nil {
		f.info = nil
		return false, fmt.Errorf("read tokens: %w", err)
	}
	sum := sha256.Sum256(text)
	if f.tokens.Load() != nil && sum == f.text {
		f.info = info
		return false, nil // those are in force
	}
	tokens, err := ReadTokens(bytes.NewReader(text))
	f.info = info // also of a file with a mistake: nothing has to read that twice
	if err != nil {
		return false, fmt.Errorf("read tokens from %s: %w", f.path, err)
	}
	f.text = sum
	f.tokens.Store(tokens)
	f.version.Add(1)
	return true, nil
}

// Err returns why the file as it is now is not in force. It is nil if it is.
func (f *TokensFile) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// Version returns how many times the file was read.
func (f *TokensFile) Version() uint64 { return f.version.Load() }

// Anyone returns the rights of callers without a token.
func (f *TokensFile) Anyone() Rights { return f.tokens.Load().anyone }

// Caller returns the caller whose bearer token r carries. See Tokens.Caller.
func (f *TokensFile) Caller(r *http.Request) (Caller, error) {
	token, err := BearerToken(r)
	if err != nil {
		return Caller{}, err
	}
	if token == "" {
		return f.withoutToken()
	}
	return f.caller(sha256.Sum256([]byte(token)))
}

// Named returns the caller of a name, as the file has it now. See Authenticator.
func (f *TokensFile) Named(name string) (Caller, bool) { return f.tokens.Load().Named(name) }

func (f *TokensFile) withoutToken() (Caller, error) {
	c := f.tokens.Load().withoutToken()
	c.now = f.withoutToken
	return c, nil
}

func (f *TokensFile) caller(digest [sha256.Size]byte) (Caller, error) {
	c, err := f.tokens.Load().caller(digest)
	c.now = func() (Caller, error) { return f.caller(digest) }
	return c, err
}
