package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/dump"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/inventory/diskpages"
	"github.com/rshub/rshub/internal/source/harvest/oaipmh"
)

// listRecords returns a listing of the records of a repository. The content of a record is the
// response to GetRecord.
func (p *program) listRecords(c *dumpConfig) dump.Listing {
	return func(ctx context.Context) iter.Seq2[*dump.Resource, error] {
		return func(yield func(*dump.Resource, error) bool) {
			r := &recordList{c: c, dir: filepath.Join(c.Out, dump.ListingDir)}
			c.repository.Repository.Getter = p.newGetter(&c.login, c.Line.Note)
			if err := errors.Join(r.list(ctx, yield), r.close()); err != nil && !errors.Is(err, errStopped) {
				yield(nil, err)
			}
		}
	}
}

// errStopped reports that the consumer of a listing stopped early.
var errStopped = errors.New("listing stopped")

// A recordList sorts records by URL, because a repository lists them in any order. The sorted
// records and their contents are in temporary files.
type recordList struct {
	c        *dumpConfig
	dir      string
	contents *os.File // one line per record, empty if the record was deleted
	store    *diskpages.Store
	gaps     []error // records and parts that could not be listed
}

// maxGaps is the maximum number of gaps that are reported individually.
const maxGaps = 1000

// list fetches and sorts all records, and then yields the gaps and the records. It returns
// errStopped if yield returned false.
func (r *recordList) list(ctx context.Context, yield func(*dump.Resource, error) bool) error {
	err := os.RemoveAll(r.dir) // may be left by a killed run
	if err == nil {
		err = os.Mkdir(r.dir, 0o700)
	}
	if err == nil {
		r.contents, err = os.OpenFile(filepath.Join(r.dir, "texts"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	}
	if err == nil {
		r.store, err = diskpages.Open(filepath.Join(r.dir, "pages"), diskpages.Options{})
	}
	if err != nil {
		return fmt.Errorf("create list of records: %w", err)
	}
	sorted, err := inventory.CollectLast(ctx, r.store, "records", r.fetchRecords(ctx))
	if err != nil {
		return err
	}
	for _, gap := range r.gaps {
		if !yield(nil, &dump.Gap{Err: gap}) {
			return errStopped
		}
	}
	for e, err := range sorted.Walk(ctx, inventory.Range{}) {
		if err != nil {
			return err
		}
		text := io.NewSectionReader(r.contents, int64(e.Position)-1, *e.Change.Length)
		if !yield(&dump.Resource{Change: e.Change, Open: func() (io.ReadCloser, error) { return io.NopCloser(text), nil }}, nil) {
			return errStopped
		}
	}
	return nil
}

// fetchRecords yields the records in the order in which the repository lists them, and writes
// their contents to r.contents. The position of an entry is one more than the offset of its
// content there.
func (r *recordList) fetchRecords(ctx context.Context) iter.Seq2[*feed.Entry, error] {
	return func(yield func(*feed.Entry, error) bool) {
		n, next := 0, uint64(1)
		for c, err := range r.c.repository.Contents(ctx) {
			bad, isBad := errors.AsType[*oaipmh.BadRecord](err)
			if _, isDoubt := errors.AsType[*oaipmh.UncertainList](err); isBad || isDoubt {
				r.addGap(bad, err)
				continue
			}
			if err == nil {
				_, err = r.contents.Write(append(c.Text, '\n'))
			}
			if err != nil {
				yield(nil, err)
				return
			}
			n++
			r.c.ShowCount(n, "records")
			if !yield(&feed.Entry{Cursor: feed.Cursor{Position: next}, Change: c.Change}, nil) {
				return
			}
			next += uint64(len(c.Text)) + 1
		}
	}
}

// addGap adds an error of the listing. bad is not nil if the error concerns a single record.
func (r *recordList) addGap(bad *oaipmh.BadRecord, err error) {
	switch {
	case bad != nil && bad.NoResource:
		r.c.Line.Note("rspublish: %v", bad)
	case len(r.gaps) < maxGaps:
		r.gaps = append(r.gaps, err)
	case len(r.gaps) == maxGaps:
		r.gaps = append(r.gaps, errors.New("and more"))
	}
}

// close removes the temporary files.
func (r *recordList) close() (err error) {
	if r.store != nil {
		err = r.store.Close()
	}
	if r.contents != nil {
		err = errors.Join(err, r.contents.Close())
	}
	return errors.Join(err, os.RemoveAll(r.dir))
}
