package ledger

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strings"

	"github.com/cockroachdb/pebble/v2"
)

// A Batch is a group of changes to a ledger that is committed atomically. It is not safe for
// concurrent use.
type Batch struct {
	files    map[string]*File           // by loc; nil removes the file and its path
	failures map[string]*Failure        // by loc; nil removes the failure
	listed   map[string]*ListedResource // by loc; nil removes the resource
	meta     map[string]any             // by name; nil removes the value
}

// put stores a change in a map of a Batch, and allocates the map if needed.
func put[T any](m *map[string]T, key string, v T) {
	if *m == nil {
		*m = map[string]T{}
	}
	(*m)[key] = v
}

// PutFile records a file that is complete and durable. It removes a Failure of the resource.
func (b *Batch) PutFile(f File) {
	put(&b.files, f.Loc, &f)
	put(&b.failures, f.Loc, nil)
}

// RemoveFile records that a resource no longer has a file. It also removes a Failure of the
// resource, and frees its path.
func (b *Batch) RemoveFile(loc string) {
	put(&b.files, loc, nil)
	put(&b.failures, loc, nil)
}

// PutFailure records that a resource could not be fetched. An older file of the resource stays.
func (b *Batch) PutFailure(f Failure) { put(&b.failures, f.Loc, &f) }

// PutListed records that a source lists a resource.
func (b *Batch) PutListed(l ListedResource) { put(&b.listed, l.Entry.Change.Loc, &l) }

// RemoveListed records that a source no longer lists a resource.
func (b *Batch) RemoveListed(loc string) { put(&b.listed, loc, nil) }

// PutMeta stores a value as JSON under a name. A nil value removes it.
func (b *Batch) PutMeta(name string, value any) { put(&b.meta, name, value) }

// Empty reports whether the batch has no changes.
func (b *Batch) Empty() bool {
	return len(b.files)+len(b.failures)+len(b.listed)+len(b.meta) == 0
}

// Commit applies a batch. When it returns nil, the changes are durable.
func (l *Ledger) Commit(b *Batch) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := &writer{batch: l.db.NewBatch()}
	defer w.batch.Close() // Close fails only for a batch that is not committed
	counts := l.counts
	for loc, f := range b.files {
		old, had, err := l.File(loc)
		if err != nil {
			return err
		}
		if had {
			counts.Files--
			counts.Bytes -= old.Size
			w.delete(pathPrefix + strings.ToLower(old.Path))
		} else if path, err := l.get(assignedPrefix + loc); err != nil {
			return err
		} else if path != nil {
			w.delete(pathPrefix + strings.ToLower(string(path)))
			w.delete(assignedPrefix + loc)
		}
		if f == nil {
			w.delete(filePrefix + loc)
			continue
		}
		counts.Files++
		counts.Bytes += f.Size
		w.put(filePrefix+loc, fileRecord{*f, storeEntry(&f.Entry)})
		w.set(pathPrefix+strings.ToLower(f.Path), []byte(loc))
	}
	for loc, f := range b.failures {
		old, err := l.get(failurePrefix + loc)
		if err != nil {
			return err
		}
		if old != nil {
			counts.Failures--
		}
		if f == nil {
			w.delete(failurePrefix + loc)
			continue
		}
		counts.Failures++
		w.put(failurePrefix+loc, failureRecord{*f, storeEntry(&f.Entry)})
	}
	for loc, r := range b.listed {
		if r == nil {
			w.delete(listedPrefix + loc)
			continue
		}
		w.put(listedPrefix+loc, listedRecord{r.Traversal, storeEntry(&r.Entry)})
	}
	for name, value := range b.meta {
		if value == nil {
			w.delete(metaPrefix + name)
			continue
		}
		w.put(metaPrefix+name, value)
	}
	w.put(countsKey, counts)
	if w.err == nil {
		w.err = w.batch.Commit(pebble.Sync)
	}
	if w.err != nil {
		return fmt.Errorf("write ledger: %w", w.err)
	}
	l.counts = counts
	return nil
}

// A writer fills a batch of Pebble, and remembers the first error.
type writer struct {
	batch *pebble.Batch
	err   error
}

func (w *writer) set(key string, value []byte) {
	if w.err == nil {
		w.err = w.batch.Set([]byte(key), value, nil)
	}
}

func (w *writer) put(key string, value any) {
	v, err := json.Marshal(value)
	if err != nil && w.err == nil {
		w.err = err
	}
	w.set(key, v)
}

func (w *writer) delete(key string) {
	if w.err == nil {
		w.err = w.batch.Delete([]byte(key), nil)
	}
}

// ListedResource returns the listing of a resource. ok is false if there is none.
func (l *Ledger) ListedResource(loc string) (r ListedResource, ok bool, err error) {
	v, err := l.get(listedPrefix + loc)
	if err != nil || v == nil {
		return ListedResource{}, false, err
	}
	r, err = readListed(loc, v)
	return r, err == nil, err
}

// ListedResources yields the resources that a source lists, in order of loc.
func (l *Ledger) ListedResources(ctx context.Context) iter.Seq2[ListedResource, error] {
	return all(ctx, l, listedPrefix, readListed)
}
