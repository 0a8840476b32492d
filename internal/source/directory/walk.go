package directory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"mime"
	"os"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/source/reconcile"
	"github.com/rshub/rshub/resourcesync"
)

// maxLoc is the maximum length of the loc of a resource, in bytes.
const maxLoc = 2048

// Resources yields the files of the directory, each with its loc, lastmod, length, sha-256 and, if
// the extension of its name determines it, media type. It is a reconcile.Listing: a file or
// directory that cannot be listed is a *reconcile.Gap. A file is read only if the ledger does not
// have its hash. The files and gaps come in the order of Compare, except gaps that may be anywhere.
// Resources holds only the names of the current directory and of those above it in memory.
func (t *Tree) Resources(ctx context.Context) iter.Seq2[*feed.Entry, error] {
	return func(yield func(*feed.Entry, error) bool) {
		w := &walk{Tree: t, ctx: ctx, yield: yield, types: map[string]string{}, settleLeft: 10 * t.opts.Settle}
		t.stats = Stats{}
		err := w.run()
		if err != nil && err != errStopped {
			yield(nil, fmt.Errorf("list %s: %w", t.dir, err))
		}
	}
}

// errStopped means that the caller stopped the iteration.
var errStopped = errors.New("the caller stopped the iteration")

// A walk is one list of a Tree.
type walk struct {
	*Tree
	ctx        context.Context
	yield      func(*feed.Entry, error) bool
	reader     *reader
	ledger     *ledger
	types      map[string]string // media types by extension
	settleLeft time.Duration     // how long the walk may still wait for files to settle

	position uint64
}

func (w *walk) run() (err error) {
	before, err := os.Stat(w.dir)
	if err != nil {
		return err
	}
	w.listedInfo = before
	if w.reader, err = newReader(w.Tree); err != nil {
		return err
	}
	defer w.reader.close()
	if w.ledger, err = openLedger(w.opts.Ledger); err != nil {
		return err
	}
	w.onDirectory(".")
	names, err := os.ReadDir(w.dir)
	if err == nil {
		err = w.listEntries(".", names)
	}
	if err == nil { // a directory that was unmounted in the meantime looks empty
		var after fs.FileInfo
		if after, err = os.Stat(w.dir); err == nil && !os.SameFile(before, after) {
			err = errors.New("directory was replaced during the listing")
		}
	}
	if closed := w.ledger.close(err == nil); err == nil {
		err = closed
	}
	return err
}

// A dirEntry is a dirEntry in a directory.
type dirEntry struct {
	fs.DirEntry
	path string
	key  string // sorts names in the order of their paths
}

// listEntries lists the entries of a directory.
func (w *walk) listEntries(dir string, entries []fs.DirEntry) error {
	names := make([]dirEntry, 0, len(entries))
	for _, e := range entries {
		n := dirEntry{DirEntry: e, path: e.Name(), key: e.Name()}
		if dir != "." {
			n.path = dir + "/" + n.path
		}
		if e.IsDir() {
			n.key += "/"
		}
		if !w.exclude.excludes(n.path) {
			names = append(names, n)
		}
	}
	slices.SortFunc(names, func(a, b dirEntry) int { return cmp.Compare(a.key, b.key) })
	for i := range names {
		if err := w.ctx.Err(); err != nil {
			return err
		}
		if err := w.listEntry(&names[i]); err != nil {
			return err
		}
	}
	return nil
}

// listEntry lists a file, or a directory with everything in it.
func (w *walk) listEntry(n *dirEntry) error {
	if rule := w.checkPath(n.path); rule != nil {
		w.stats.Names++
		if n.IsDir() {
			return w.gap(n.path+"/", rule) // it is sorted like the directory's contents
		}
		return w.gap(n.path, rule)
	}
	switch kind := n.Type(); {
	case kind.IsDir():
		return w.listDirectory(n.path)
	case kind&fs.ModeSymlink != 0:
		w.stats.Links++
		return nil
	case !kind.IsRegular():
		w.stats.Special++
		return nil
	}
	info, err := n.Info()
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it was removed in the meantime
	}
	if err != nil {
		return w.gap(n.path, err)
	}
	r := stat(n.path, info)
	if !w.ledger.lookUp(&r) {
		var trusted bool
		r, trusted, err = w.reader.read(w.ctx, n.path, info, &w.settleLeft)
		switch {
		case w.ctx.Err() != nil:
			return w.ctx.Err()
		case errors.Is(err, errNoFile):
			return nil
		case err != nil:
			if errors.Is(err, ErrBusy) {
				w.onBusy(n.path)
			}
			return w.gap(n.path, err)
		}
		w.stats.Hashed++
		if trusted {
			w.ledger.add(&r)
		}
	}
	w.stats.Files++
	w.position++
	if !w.yield(w.entry(&r, w.position, w.types), nil) {
		return errStopped
	}
	return nil
}

// listDirectory lists everything in a listDirectory.
func (w *walk) listDirectory(p string) error {
	w.onDirectory(p)
	entries, err := os.ReadDir(w.join(p))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it was removed in the meantime
	}
	if err != nil {
		return w.gap("", fmt.Errorf("read directory %s; nothing is deleted in this run: %w", printable(p), cause(err)))
	}
	return w.listEntries(p, entries)
}

// gap yields a gap at a path. An empty path means that the gap may be anywhere.
func (w *walk) gap(p string, err error) error {
	g := &reconcile.Gap{Err: err}
	if p != "" {
		g.Loc, g.Err = w.Loc(p), fmt.Errorf("%s: %w", printable(p), cause(err))
	}
	if !w.yield(nil, g) {
		return errStopped
	}
	return nil
}

// cause returns an error without its path, which the message already has.
func cause(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}

// printable returns a path for messages. It escapes bytes that are not text.
func printable(p string) string {
	if utf8.ValidString(p) && !strings.ContainsFunc(p, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return p
	}
	return fmt.Sprintf("%q", p)
}

// checkPath returns an error unless a path can be a resource.
func (t *Tree) checkPath(p string) error {
	switch {
	case !utf8.ValidString(p):
		return errors.New("name is not UTF-8; rename it")
	case len(t.base)+len(p) > maxLoc || len(t.base)+len(p)*3 > maxLoc && len(t.Loc(p)) > maxLoc:
		return fmt.Errorf("URL is longer than %d bytes", maxLoc)
	}
	return nil
}

// entry returns the resource for a file.
func (t *Tree) entry(r *record, position uint64, types map[string]string) *feed.Entry {
	e := &feed.Entry{Cursor: feed.Cursor{Position: position}}
	size := r.size
	e.Change = resourcesync.Change{Loc: t.Loc(r.path), Change: resourcesync.Updated, Length: &size, Hash: r.hash(), Type: mediaType(r.path, types)}
	if at := time.Unix(0, r.mtime).UTC(); at.Year() >= 1 && at.Year() <= 9999 {
		e.Change.Lastmod = at
	}
	return e
}

// mediaType returns the media type for the extension of a name, without parameters, because an
// extension does not determine the charset.
func mediaType(p string, known map[string]string) string {
	ext := path.Ext(p)
	t, ok := known[ext]
	if !ok {
		t, _, _ = strings.Cut(mime.TypeByExtension(ext), ";")
		if t = strings.TrimSpace(t); len(known) < 1_000 {
			known[ext] = t
		}
	}
	return t
}
