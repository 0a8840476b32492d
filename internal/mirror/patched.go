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

// patched returns what opens the content that a patch of the change makes of the file as it is;
// nil: there is no such patch, or it leads nowhere, and then the whole content is fetched. Only a
// hash shows whether the content is right, so a change without one is not patched.
func (t *target) patched(ctx context.Context, old *ledger.File, patience time.Duration) (func() (io.ReadCloser, error), error) {
	c := &t.entry.Change
	i := slices.IndexFunc(c.Links, func(l resourcesync.Link) bool { return l.Rel == resourcesync.RelPatch && patch.Known(l.Type) })
	if i < 0 || old.Size > patch.Most || !fetch.NewSum(c.Hash).Verified() {
		return nil, nil
	}
	l := &c.Links[i]
	if l.Length != nil && *l.Length > patch.Most {
		return nil, nil
	}
	name := home.Parts + "/" + partName(c.Loc) + ".patch"
	file, err := t.home.Root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	text, err := t.fetchPatch(ctx, l, patience, file)
	if err := errors.Join(file.Close(), t.unlink(name)); err != nil {
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
		return nil, nil // it is gone meanwhile
	}
	content, err := patch.Apply(l.Type, before, text)
	if err != nil {
		return nil, nil
	}
	return func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }, nil
}

// fetchPatch returns the patch at a link; nil: it is too large. It uses file for the time being.
func (t *target) fetchPatch(ctx context.Context, l *resourcesync.Link, patience time.Duration, file *os.File) ([]byte, error) {
	at := &resourcesync.Change{Loc: l.Href, Hash: l.Hash, Length: l.Length}
	got, err := t.fetcher.Get(ctx, fetch.Wanted{Change: at, Patience: patience}, file)
	if err != nil || got.Size > patch.Most {
		return nil, err
	}
	return io.ReadAll(io.NewSectionReader(file, 0, got.Size))
}
