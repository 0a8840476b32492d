package mirror

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"time"

	"github.com/rshub/rshub/internal/mirror/fetch"
	"github.com/rshub/rshub/internal/mirror/home"
	"github.com/rshub/rshub/internal/mirror/ledger"
	"github.com/rshub/rshub/internal/mirror/patch"
	"github.com/rshub/rshub/resourcesync"
)

// openPatched returns a function that opens the content that the patch of the change yields for
// the current file. It returns nil if there is no usable patch; then the whole content is
// fetched. Only a hash shows whether the result is right, so a change without one is not
// patched.
func (t *target) openPatched(ctx context.Context, old *ledger.File, timeout time.Duration) (func() (io.ReadCloser, error), error) {
	c := &t.entry.Change
	i := slices.IndexFunc(c.Links, func(l resourcesync.Link) bool { return l.Rel == resourcesync.RelPatch && patch.Supported(l.Type) })
	if i < 0 || old.Size > patch.MaxSize || !fetch.NewSum(c.Hash).HasHash() {
		return nil, nil
	}
	l := &c.Links[i]
	if l.Length != nil && *l.Length > patch.MaxSize {
		return nil, nil
	}
	name := home.Parts + "/" + partName(c.Loc) + ".patch"
	file, err := t.home.Root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	text, err := t.fetchPatch(ctx, l, timeout, file)
	if err := errors.Join(file.Close(), t.removeFile(name)); err != nil {
		return nil, err
	}
	if _, failed := errors.AsType[*fetch.Failure](err); failed || err == nil && text == nil {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	before, err := t.home.Root.ReadFile(old.Path)
	if err != nil {
		return nil, nil // removed in the meantime
	}
	content, err := patch.Apply(l.Type, before, text)
	if err != nil {
		return nil, nil
	}
	return func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }, nil
}

// fetchPatch returns the patch that a link refers to, or nil if it is too large. It stores the
// patch in file on the way.
func (t *target) fetchPatch(ctx context.Context, l *resourcesync.Link, timeout time.Duration, file *os.File) ([]byte, error) {
	change := &resourcesync.Change{Loc: l.Href, Hash: l.Hash, Length: l.Length}
	result, err := t.opts.Fetcher.Get(ctx, fetch.Request{Change: change, Timeout: timeout}, file)
	if err != nil || result.Size > patch.MaxSize {
		return nil, err
	}
	return io.ReadAll(io.NewSectionReader(file, 0, result.Size))
}
