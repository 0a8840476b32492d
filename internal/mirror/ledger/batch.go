package ledger

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strings"

	"github.com/cockroachdb/pebble/v2"
)

// A Batch is a group of changes of a ledger: a crash leaves all of them or none. One
// goroutine may use it.
type Batch struct {
	files    map[string]*File    // by loc; nil: remove the file and its path
	failures map[string]*Failure // by loc; nil: remove the failure
	listed   map[string]*Listed  // by loc; nil: remove the resource
	meta     map[string]any      // by name; nil: remove the value
}

// set notes a change in one of the maps of a Batch.
func set[T any](m *map[string]T, key string, v T) {
	if *m == nil {
		*m = map[string]T{}
	}
	(*m)[key] = v
}

// File records a file that is complete and durable. It removes a Failure of the
// resource.
func (b *Batch) File(f File) {
	set(&b.files, f.Loc, &f)
	set(&b.failures, f.Loc, nil)
}

// Remove records that a resource has no file any more. It also removes a Failure of the
// resource, and frees its path.
func (b *Batch) Remove(loc string) {
	set(&b.files, loc, nil)
	set(&b.failures, loc, nil)
}

// Failure records that a resource could not be fetched. An older file of the
// resource stays.
func (b *Batch) Failure(f Failure) { set(&b.failures, f.Loc, &f) }

// Listed records that a source lists a resource.
func (b *Batch) Listed(l Listed) { set(&b.listed, l.Entry.Change.Loc, &l) }

// Unlisted records that a source no longer lists a resource.
func (b *Batch) Unlisted(loc string) { set(&b.listed, loc, nil) }

// Meta keeps a value, as JSON, under a name. A nil value is forgotten.
func (b *Batch) Meta(name string, value any) { set(&b.meta, name, value) }

// Empty reports whether there is nothing in the batch.
func (b *Batch) Empty() bool {
	return len(b.files)+len(b.failures)+len(b.listed)+len(b.meta) == 0
}

// Commit makes the changes of a batch. When it returns nil, they are durable.
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
		} else if path, err := l.get(placePrefix + loc); err != nil {
			return err
		} else if path != nil {
			w.delete(pathPrefix + strings.ToLower(string(path)))
			w.delete(placePrefix + loc)
		}
		if f == nil {
			w.delete(filePrefix + loc)
			continue
		}
		counts.Files++
		counts.Bytes += f.Size
		w.put(filePrefix+loc, fileRecord{*f, pack(&f.Entry)})
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
		w.put(failurePrefix+loc, failureRecord{*f, pack(&f.Entry)})
	}
	for loc, r := range b.listed {
		if r == nil {
			w.delete(listedPrefix + loc)
			continue
		}
		w.put(listedPrefix+loc, listedRecord{r.Look, pack(&r.Entry)})
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
		return fmt.Errorf("write the ledger: %w", w.err)
	}
	l.counts = counts
	return nil
}

// A writer fills a batch of Pebble, and keeps the first error.
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

// Seen returns the Listed of a resource.
func (l *Ledger) Seen(loc string) (r Listed, ok bool, err error) {
	v, err := l.get(listedPrefix + loc)
	if err != nil || v == nil {
		return Listed{}, false, err
	}
	r, err = readListed(loc, v)
	return r, err == nil, err
}

// Listed yields the resources that a source lists, in the order of loc.
func (l *Ledger) Listed(ctx context.Context) iter.Seq2[Listed, error] {
	return all(ctx, l, listedPrefix, readListed)
}
