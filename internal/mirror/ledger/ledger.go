// Package ledger stores the bookkeeping of a mirror in a directory of the local disk: which files
// it has made, which resources it could not get yet, what a source without a hub has listed, and a
// few settings.
//
// It survives the end of the process, and of the machine, at any moment. It touches none of the
// files themselves: package mirror does, and commits to the ledger afterward.
package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/mirror/filename"
	"github.com/rshub/rshub/internal/pebbledb"
	"github.com/rshub/rshub/resourcesync"
)

// A File is a file that the mirror made for a resource.
type File struct {
	Loc      string     `json:"-"`
	Path     string     `json:"path"` // below the mirror's directory, with slashes
	Size     int64      `json:"size"`
	Mtime    int64      `json:"mtime"`              // of the file when it was made, in nanoseconds since 1970
	SHA256   string     `json:"sha256"`             // of the content, in lower-case hex
	ETag     string     `json:"etag,omitempty"`     // ETag of the answer with the content
	Modified string     `json:"modified,omitempty"` // Last-Modified of that answer
	Entry    feed.Entry `json:"-"`                  // the change whose content the file has
}

// A Failure is a resource that the mirror could not fetch.
type Failure struct {
	Loc    string     `json:"-"`
	Entry  feed.Entry `json:"-"`      // the newest change, which the mirror has not applied
	Reason string     `json:"reason"` // why the last try failed
	Since  time.Time  `json:"since"`  // when the first try failed
	Next   time.Time  `json:"next"`   // when it is tried again
	Tries  int        `json:"tries"`
	Part   *Part      `json:"part,omitempty"` // the part that was fetched; nil: nothing useful
}

// A Part is the beginning of a content whose rest was not received. Its bytes are
// in a temporary file.
type Part struct {
	File string `json:"file"` // its name
	URL  string `json:"url"`  // where it came from
	ETag string `json:"etag"` // a strong ETag
}

// Counts say how much a ledger has.
type Counts struct {
	Files    int64 `json:"files"`
	Bytes    int64 `json:"bytes"` // of all files
	Failures int64 `json:"failures"`
}

// A Ledger is open until Close. Several goroutines may use it. Its errors are those of
// the disk. After an error the ledger cannot be used any more.
type Ledger struct {
	db *pebble.DB

	mu     sync.Mutex
	counts Counts
}

// The keys. A path is kept in lower case.
const (
	filePrefix    = "file/"    // and the loc: a File
	pathPrefix    = "path/"    // and the path: the loc that has it
	placePrefix   = "place/"   // and a loc that has no File: its path
	failurePrefix = "failure/" // and the loc: a Failure
	listedPrefix  = "listed/"  // and the loc: a Listed
	metaPrefix    = "meta/"    // and a name: a value of the caller
	countsKey     = "counts"
)

// Open opens the ledger in a directory. It makes both if they do not exist. The caller
// closes the Ledger. For fatal, see pebbledb.Options.
func Open(dir string, fatal func(error)) (*Ledger, error) {
	db, err := pebbledb.Open(dir, pebbledb.Options{What: "the ledger", Format: "1", Bloom: true, Fatal: fatal})
	if err != nil {
		return nil, err
	}
	l := &Ledger{db: db}
	if _, err := l.read(countsKey, &l.counts); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return l, nil
}

// Close closes the ledger. Nothing may be called after it.
func (l *Ledger) Close() error { return l.db.Close() }

// Copy makes a copy of the ledger, as it is now, in a directory that does not exist yet.
// It is fast, because it links the files. The copy takes little room as long as the
// ledger changes little.
func (l *Ledger) Copy(dir string) error {
	if err := l.db.Checkpoint(dir, pebble.WithFlushedWAL()); err != nil {
		return fmt.Errorf("copy the ledger to %s: %w", dir, err)
	}
	return nil
}

// get returns the value of a key; nil if there is none.
func (l *Ledger) get(key string) ([]byte, error) { return pebbledb.Get(l.db, key) }

// read reads the value of a key as JSON.
func (l *Ledger) read(key string, into any) (ok bool, err error) {
	v, err := l.get(key)
	if err != nil || v == nil {
		return false, err
	}
	if err := json.Unmarshal(v, into); err != nil {
		return false, fmt.Errorf("the ledger is damaged at %s: %w", resourcesync.Shorten(key), err)
	}
	return true, nil
}

// Counts returns how much the ledger has.
func (l *Ledger) Counts() Counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts
}

// Meta reads a value that Batch.Meta wrote. ok is false if there is none.
func (l *Ledger) Meta(name string, into any) (ok bool, err error) {
	return l.read(metaPrefix+name, into)
}

// File returns what the mirror made for a resource.
func (l *Ledger) File(loc string) (f File, ok bool, err error) {
	v, err := l.get(filePrefix + loc)
	if err != nil || v == nil {
		return File{}, false, err
	}
	f, err = readFile(loc, v)
	return f, err == nil, err
}

// Failure returns why the mirror could not fetch a resource.
func (l *Ledger) Failure(loc string) (f Failure, ok bool, err error) {
	v, err := l.get(failurePrefix + loc)
	if err != nil || v == nil {
		return Failure{}, false, err
	}
	f, err = readFailure(loc, v)
	return f, err == nil, err
}

// Owner returns the resource that has a path. ok is false if none has.
func (l *Ledger) Owner(path string) (loc string, ok bool, err error) {
	v, err := l.get(pathPrefix + strings.ToLower(path))
	return string(v), v != nil, err
}

// Path returns the path that a resource has: that of its file, or the one that Place has
// chosen. ok is false if it has none.
func (l *Ledger) Path(loc string) (path string, ok bool, err error) {
	f, ok, err := l.File(loc)
	if err != nil || ok {
		return f.Path, ok, err
	}
	v, err := l.get(placePrefix + loc)
	return string(v), v != nil, err
}

// Place chooses paths for those of the resources that have none. A resource keeps its
// path until Batch.Remove. When Place returns, the paths are durable. So a file at such a
// path is known to belong to its resource, even if the process ends before it records the
// File. A resource whose URL has no path gets none.
func (l *Ledger) Place(names filename.Names, locs ...string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := &writer{batch: l.db.NewIndexedBatch()}
	defer w.batch.Close() // the error is that of a batch that was committed
	for _, loc := range locs {
		if _, ok, err := l.Path(loc); err != nil || ok {
			if err != nil {
				return err
			}
			continue
		}
		t := &taken{in: w.batch, loc: loc}
		path, err := names.Choose(loc, t)
		if t.err != nil {
			return t.err
		}
		if err == nil {
			w.set(placePrefix+loc, []byte(path))
			w.set(pathPrefix+strings.ToLower(path), []byte(loc))
		}
	}
	if w.err == nil && !w.batch.Empty() {
		w.err = w.batch.Commit(pebble.Sync)
	}
	if w.err != nil {
		return fmt.Errorf("write the ledger: %w", w.err)
	}
	return nil
}

// A taken is the filename.Taken for one resource.
type taken struct {
	in  *pebble.Batch // the ledger, with the paths that were just chosen
	loc string
	err error
}

func (t *taken) File(path string) bool {
	owner, err := pebbledb.Get(t.in, pathPrefix+strings.ToLower(path))
	t.err = errors.Join(t.err, err)
	return owner != nil && string(owner) != t.loc
}

func (t *taken) Dir(path string) bool {
	for _, err := range keys(context.Background(), t.in, pathPrefix+strings.ToLower(path)+"/") {
		t.err = errors.Join(t.err, err)
		return err == nil
	}
	return false
}

// A pair is a key without the requested prefix, and its value.
type pair struct {
	key   string
	value []byte // valid only until the next pair
}

// keys yields all pairs whose keys begin with a prefix, in their order, as of the
// beginning.
func keys(ctx context.Context, from pebble.Reader, prefix string) iter.Seq2[pair, error] {
	return func(yield func(pair, error) bool) {
		upper := []byte(prefix)
		upper[len(upper)-1]++ // no prefix ends with 0xFF
		it, err := from.NewIterWithContext(ctx, &pebble.IterOptions{LowerBound: []byte(prefix), UpperBound: upper})
		if err != nil {
			yield(pair{}, err)
			return
		}
		defer it.Close()
		for ok := it.First(); ok; ok = it.Next() {
			if !yield(pair{string(it.Key()[len(prefix):]), it.Value()}, nil) {
				return
			}
		}
		if err := it.Error(); err != nil {
			yield(pair{}, err)
		}
	}
}

// Known yields the loc of every resource that has a path or a Failure. It may yield a loc
// twice.
func (l *Ledger) Known(ctx context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for p, err := range keys(ctx, l.db, pathPrefix) {
			if !yield(string(p.value), err) || err != nil {
				return
			}
		}
		for p, err := range keys(ctx, l.db, failurePrefix) {
			if !yield(p.key, err) || err != nil {
				return
			}
		}
	}
}

// Files yields all files in the order of loc.
func (l *Ledger) Files(ctx context.Context) iter.Seq2[File, error] {
	return all(ctx, l, filePrefix, readFile)
}

// Failures yields all failures in the order of loc.
func (l *Ledger) Failures(ctx context.Context) iter.Seq2[Failure, error] {
	return all(ctx, l, failurePrefix, readFailure)
}

// all yields the values of the keys with a prefix. An error ends the sequence.
func all[T any](ctx context.Context, l *Ledger, prefix string, read func(loc string, v []byte) (T, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for p, err := range keys(ctx, l.db, prefix) {
			var v T
			if err == nil {
				err = ctx.Err()
			}
			if err == nil {
				v, err = read(p.key, p.value)
			}
			if !yield(v, err) || err != nil {
				return
			}
		}
	}
}
