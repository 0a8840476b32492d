package dump

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"

	"github.com/rshub/rshub/feed"
)

// A former is the Resource Dump before the one that is being made. The content of a resource
// that has not changed since is taken from there, so its source is not asked again. Both dumps
// are in the order of loc, so one package at a time is enough; it is copied to a temporary file.
type former struct {
	*Maker
	set  string
	dump *made
	next int // package to look into next

	last string // loc; behind it, the open package has nothing
	open *formerPackage
}

// A formerPackage is a package that is open.
type formerPackage struct {
	file  *os.File
	byPos map[uint64]*zip.File // by the position of the change
	using sync.WaitGroup       // contents that are read
}

// items yields entries, and where their contents are in the former dump. A nil former has none.
func (f *former) items(ctx context.Context, entries iter.Seq2[*feed.Entry, error]) iter.Seq2[item, error] {
	return func(yield func(item, error) bool) {
		defer f.close()
		for e, err := range entries {
			it := item{entry: e}
			if err == nil {
				f.find(ctx, &it)
			}
			if !yield(it, err) {
				return
			}
		}
	}
}

// find looks for the content of an item.
func (f *former) find(ctx context.Context, it *item) {
	if f == nil {
		return
	}
	for f.open == nil || it.entry.Change.Loc > f.last {
		if f.next == len(f.dump.Packages) {
			return
		}
		f.close()
		p := &f.dump.Packages[f.next]
		f.next++
		f.last = p.Last
		if it.entry.Change.Loc > p.Last {
			continue // no need to open it
		}
		var err error
		if f.open, err = f.read(ctx, p); err != nil {
			f.open = &formerPackage{}
			if ctx.Err() == nil {
				f.opts.Logger.Warn("a package of the former dump cannot be read, so its contents are fetched anew", "set", f.set, "package", f.dump.name(p, zipEnd), "err", err)
			}
		}
	}
	z := f.open.byPos[it.entry.Position]
	if z == nil {
		return
	}
	f.open.using.Add(1)
	it.packed, it.mediaType, it.done = z.Open, z.Comment, f.open.using.Done
}

// read copies a package, and reads its directory.
func (f *former) read(ctx context.Context, p *pack) (*formerPackage, error) {
	in, err := f.place.Open(ctx, dirOf(f.set)+f.dump.name(p, zipEnd))
	if err != nil {
		return nil, err
	}
	defer in.Close()
	file, err := temporary(f.opts.Dir)
	if err != nil {
		return nil, err
	}
	open := &formerPackage{file: file, byPos: make(map[uint64]*zip.File, p.Resources)}
	n, err := io.Copy(file, in)
	if err == nil && n != p.Zip.Size {
		err = fmt.Errorf("it has %d bytes, and had %d", n, p.Zip.Size)
	}
	var z *zip.Reader
	if err == nil {
		z, err = zip.NewReader(file, n)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	for _, each := range z.File {
		dir, name := path.Split(each.Name)
		number, _, _ := strings.Cut(name, ".")
		if position, err := strconv.ParseUint(number, 10, 64); err == nil && dir == resourceDir {
			open.byPos[position] = each
		}
	}
	return open, nil
}

// close closes the package that is open, when nobody reads it any more.
func (f *former) close() {
	if f == nil || f.open == nil {
		return
	}
	f.open.using.Wait()
	if f.open.file != nil {
		_ = f.open.file.Close() // it was only read
	}
	f.open = nil
}
