// Package ledger stores the bookkeeping of a mirror on the local disk: the files that the mirror
// created, the resources that it could not fetch yet, the listing of a source without a hub, and a
// few settings.
//
// It survives a crash of the process or the machine at any time. It does not touch the files:
// package mirror writes them, and then commits to the ledger.
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

// A File is a file that the mirror created for a resource.
type File struct {
	Loc      string     `json:"-"`
	Path     string     `json:"path"` // relative to the mirror's directory, with slashes
	Size     int64      `json:"size"`
	Mtime    int64      `json:"mtime"`              // of the file when it was created, in nanoseconds since 1970
	SHA256   string     `json:"sha256"`             // of the content, in lower-case hex
	ETag     string     `json:"etag,omitempty"`     // ETag of the response with the content
	Modified string     `json:"modified,omitempty"` // Last-Modified of that response
	Entry    feed.Entry `json:"-"`                  // change whose content the file has
}

// A Failure is a resource that the mirror could not fetch.
type Failure struct {
	Loc    string     `json:"-"`
	Entry  feed.Entry `json:"-"`      // newest change, which has not been applied
	Reason string     `json:"reason"` // error of the last attempt
	Since  time.Time  `json:"since"`  // time of the first failed attempt
	Next   time.Time  `json:"next"`   // time of the next attempt
	Tries  int        `json:"tries"`
	Part   *Part      `json:"part,omitempty"` // part that was fetched; nil if useless
}

// A Part is the start of a content whose rest was not received. Its bytes are in a temporary
// file.
type Part struct {
	File string `json:"file"` // name of the temporary file
	URL  string `json:"url"`  // origin of the bytes
	ETag string `json:"etag"` // a strong ETag
}

// Counts are the totals of a ledger.
type Counts struct {
	Files    int64 `json:"files"`
	Bytes    int64 `json:"bytes"` // of all files
	Failures int64 `json:"failures"`
}

// A Ledger is the open bookkeeping of a mirror. It is safe for concurrent use. Its errors are
// errors of the disk; after one the Ledger must no longer be used.
type Ledger struct {
	db *pebble.DB

	mu     sync.Mutex
	counts Counts
}

// The keys. Paths are stored in lower case.
const (
	filePrefix     = "file/"    // + loc: a File
	pathPrefix     = "path/"    // + path: the loc that has it
	assignedPrefix = "place/"   // + loc without a File: its path
	failurePrefix  = "failure/" // + loc: a Failure
	listedPrefix   = "listed/"  // + loc: a ListedResource
	metaPrefix     = "meta/"    // + name: a value of the caller
	countsKey      = "counts"
)

// Open opens the ledger in a directory, and creates both if they do not exist. The caller must
// close the Ledger. For fatal, see pebbledb.Options.
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

// Close closes the ledger. No method may be called after it.
func (l *Ledger) Close() error { return l.db.Close() }

// Copy copies the ledger to a directory that does not exist yet. It is fast because it links the
// files; the copy takes little space as long as the ledger changes little.
func (l *Ledger) Copy(dir string) error {
	if err := l.db.Checkpoint(dir, pebble.WithFlushedWAL()); err != nil {
		return fmt.Errorf("copy the ledger to %s: %w", dir, err)
	}
	return nil
}

// get returns the value of a key, or nil if there is none.
func (l *Ledger) get(key string) ([]byte, error) { return pebbledb.Get(l.db, key) }

// read decodes the JSON value of a key.
func (l *Ledger) read(key string, into any) (ok bool, err error) {
	v, err := l.get(key)
	if err != nil || v == nil {
		return false, err
	}
	if err := json.Unmarshal(v, into); err != nil {
		return false, fmt.Errorf("ledger is damaged at %s: %w", resourcesync.Shorten(key), err)
	}
	return true, nil
}

// Counts returns the totals of the ledger.
func (l *Ledger) Counts() Counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts
}

// Meta decodes a value that Batch.PutMeta stored. ok is false if there is none.
func (l *Ledger) Meta(name string, into any) (ok bool, err error) {
	return l.read(metaPrefix+name, into)
}

// A Meta is a value that Batch.PutMeta stored.
type Meta struct {
	Name string
	JSON []byte // valid until the next value is yielded
}

// Metas yields the values whose names start with a prefix, in the order of their names. An error
// ends the sequence.
func (l *Ledger) Metas(ctx context.Context, prefix string) iter.Seq2[Meta, error] {
	return func(yield func(Meta, error) bool) {
		for p, err := range scan(ctx, l.db, metaPrefix+prefix) {
			if !yield(Meta{prefix + p.key, p.value}, err) || err != nil {
				return
			}
		}
	}
}

// File returns the file of a resource. ok is false if there is none.
func (l *Ledger) File(loc string) (f File, ok bool, err error) {
	v, err := l.get(filePrefix + loc)
	if err != nil || v == nil {
		return File{}, false, err
	}
	f, err = readFile(loc, v)
	return f, err == nil, err
}

// Failure returns the failure of a resource. ok is false if there is none.
func (l *Ledger) Failure(loc string) (f Failure, ok bool, err error) {
	v, err := l.get(failurePrefix + loc)
	if err != nil || v == nil {
		return Failure{}, false, err
	}
	f, err = readFailure(loc, v)
	return f, err == nil, err
}

// Owner returns the resource that has a path. ok is false if none has it.
func (l *Ledger) Owner(path string) (loc string, ok bool, err error) {
	v, err := l.get(pathPrefix + strings.ToLower(path))
	return string(v), v != nil, err
}

// Path returns the path of a resource: that of its file, or the one that AssignPaths chose. ok
// is false if it has none.
func (l *Ledger) Path(loc string) (path string, ok bool, err error) {
	f, ok, err := l.File(loc)
	if err != nil || ok {
		return f.Path, ok, err
	}
	v, err := l.get(assignedPrefix + loc)
	return string(v), v != nil, err
}

// AssignPaths chooses paths for the resources without one. A resource keeps its path
// until Batch.RemoveFile. When AssignPaths returns, the paths are durable. So a file at such a
// path is known to belong to its resource, even if the process crashes before it records the
// File. A resource whose URL cannot have a path gets none.
func (l *Ledger) AssignPaths(names filename.Names, locs ...string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := &writer{batch: l.db.NewIndexedBatch()}
	defer w.batch.Close() // a committed batch caused the error
	for _, loc := range locs {
		if _, ok, err := l.Path(loc); err != nil || ok {
			if err != nil {
				return err
			}
			continue
		}
		t := &usedPaths{in: w.batch, loc: loc}
		path, err := names.Choose(loc, t)
		if t.err != nil {
			return t.err
		}
		if err == nil {
			w.set(assignedPrefix+loc, []byte(path))
			w.set(pathPrefix+strings.ToLower(path), []byte(loc))
		}
	}
	if w.err == nil && !w.batch.Empty() {
		w.err = w.batch.Commit(pebble.Sync)
	}
	if w.err != nil {
		return fmt.Errorf("write ledger: %w", w.err)
	}
	return nil
}

// usedPaths implements filename.UsedPaths for one resource.
type usedPaths struct {
	in  *pebble.Batch // the ledger with the paths chosen so far
	loc string
	err error
}

func (t *usedPaths) File(path string) bool {
	owner, err := pebbledb.Get(t.in, pathPrefix+strings.ToLower(path))
	t.err = errors.Join(t.err, err)
	return owner != nil && string(owner) != t.loc
}

func (t *usedPaths) Dir(path string) bool {
	for _, err := range scan(context.Background(), t.in, pathPrefix+strings.ToLower(path)+"/") {
		t.err = errors.Join(t.err, err)
		return err == nil
	}
	return false
}

// A pair is a key without the scanned prefix, and its value.
type pair struct {
	key   string
	value []byte // valid until the next pair
}

// scan yields all pairs whose keys start with a prefix, in key order, from a snapshot.
func scan(ctx context.Context, from pebble.Reader, prefix string) iter.Seq2[pair, error] {
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

// Locs yields the loc of every resource that has a path or a Failure. It may yield a loc twice.
func (l *Ledger) Locs(ctx context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for p, err := range scan(ctx, l.db, pathPrefix) {
			if !yield(string(p.value), err) || err != nil {
				return
			}
		}
		for p, err := range scan(ctx, l.db, failurePrefix) {
			if !yield(p.key, err) || err != nil {
				return
			}
		}
	}
}

// Files yields all files in order of loc.
func (l *Ledger) Files(ctx context.Context) iter.Seq2[File, error] {
	return all(ctx, l, filePrefix, readFile)
}

// Failures yields all failures in order of loc.
func (l *Ledger) Failures(ctx context.Context) iter.Seq2[Failure, error] {
	return all(ctx, l, failurePrefix, readFailure)
}

// all yields the values of the keys with a prefix. An error ends the sequence.
func all[T any](ctx context.Context, l *Ledger, prefix string, read func(loc string, v []byte) (T, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for p, err := range scan(ctx, l.db, prefix) {
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
