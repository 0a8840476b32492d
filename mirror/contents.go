package mirror

import (
	"context"
	"errors"
	"io"
	"iter"
	"net/url"
	"slices"
	"time"

	"github.com/rshub/rshub/client"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/harvest"
	"github.com/rshub/rshub/mirror/fetch"
	"github.com/rshub/rshub/mirror/ledger"
	"github.com/rshub/rshub/resourcesync"
)

// Contents come from dumps, so that they need not be asked for one by one: those of all
// resources from the Resource Dump, and those of what changed since from the Change Dump. A
// dump says nothing of what there is: the hub or the lists say that afterwards, and a file that
// is right by then stays. So a dump that is old, damaged or gone costs time, and nothing else.

// A stock is how far a mirror has taken contents from dumps.
type stock struct {
	Dump string `json:"dump,omitempty"` // the print of the Resource Dump
	Read int    `json:"read,omitempty"` // packages of it that are taken
	Last string `json:"last,omitempty"` // URL of the package of the Change Dump that was taken last
}

// stockKey is the name of the stock in the ledger.
const stockKey = "stock"

// A stocking takes contents from dumps.
type stocking struct {
	*Mirror
	to    *Directory
	stock stock
	since time.Time // changes up to then are of no use; zero: all are of use

	taken  []feed.Entry
	packed map[string]*member // by loc: where the newest content is
}

// restockFrom takes contents from the dumps of a hub, for a replica that goes on from there. Dumps
// of somebody else may have resources that the hub does not know.
func (m *Mirror) restockFrom(ctx context.Context, hub feed.Base, set string, r *client.Replica) error {
	resources, changes := m.source.ResourceDump, m.source.ChangeDump
	if resources != hub.ResourceDump(set) {
		resources = ""
	}
	if changes != hub.ChangeDump(set) {
		changes = ""
	}
	var since time.Time
	if at, ok := r.Cursor(); ok {
		since = at.Time()
	}
	return m.restock(ctx, resources, changes, since)
}

// restock takes the contents that the mirror does not have from dumps. since is up to when the
// mirror has all that the source has said; zero: it has nothing yet. An error is one of the own
// disk, or ctx's: what is wrong with a dump is only noted.
func (m *Mirror) restock(ctx context.Context, resources, changes string, since time.Time) error {
	to, ok := m.sink.(*Directory)
	if !ok {
		return nil
	}
	s := &stocking{Mirror: m, to: to, packed: map[string]*member{}}
	_, err := m.home.Ledger.Meta(stockKey, &s.stock)
	if err == nil && since.IsZero() && resources != "" {
		since, err = s.resources(ctx, resources)
	}
	if err == nil && !since.IsZero() && changes != "" {
		err = s.changes(ctx, changes, since)
	}
	if passing(err) && ctx.Err() == nil {
		m.opts.Note("%v; contents are asked for one by one", err)
		return nil
	}
	return err
}

// resources takes the contents of a Resource Dump. It returns up to when all changes are in it.
func (s *stocking) resources(ctx context.Context, dump string) (time.Time, error) {
	d, err := s.lister.Dump(ctx, dump)
	if err != nil {
		return time.Time{}, &SourceError{err}
	}
	if print := printOf(d); s.stock.Dump != print {
		s.stock = stock{Dump: print}
	}
	for ; s.stock.Read < len(d.Packages); s.stock.Read++ {
		s.opts.Note("taking contents from package %d of %d of the Resource Dump", s.stock.Read+1, len(d.Packages))
		if err := s.take(ctx, &d.Packages[s.stock.Read], s.lister.Manifest); err != nil {
			return time.Time{}, err
		}
		next := s.stock
		next.Read++
		if err := s.keep(next); err != nil {
			return time.Time{}, err
		}
	}
	return d.At, nil
}

// changes takes the contents of packages of a Change Dump. It leaves out a package of whose
// time the mirror has the larger part: what is left of it is asked for one by one.
func (s *stocking) changes(ctx context.Context, dump string, since time.Time) error {
	s.since = since
	d, err := s.lister.ChangeDump(ctx, dump, since)
	if err != nil {
		return &SourceError{err}
	}
	packages := d.Packages
	if last := slices.IndexFunc(packages, func(p harvest.Package) bool { return p.Change.Loc == s.stock.Last }); last >= 0 {
		packages = packages[last+1:]
	}
	for i := range packages {
		p := &packages[i]
		if p.From.IsZero() || p.From.Add(p.Until.Sub(p.From)/2).Before(since) {
			continue
		}
		s.opts.Note("taking contents from package %d of %d of the Change Dump", i+1, len(packages))
		if err := s.take(ctx, p, s.lister.ChangeManifest); err != nil {
			return err
		}
		next := s.stock
		next.Last = p.Change.Loc
		if err := s.keep(next); err != nil {
			return err
		}
		s.stock = next
	}
	return nil
}

func (s *stocking) keep(now stock) error {
	var b ledger.Batch
	b.Meta(stockKey, now)
	return s.home.Ledger.Commit(&b)
}

// take takes the contents of one package. Only those with a hash are taken: nothing else could
// show later that they are right.
func (s *stocking) take(ctx context.Context, p *harvest.Package, read func(context.Context, io.Reader, *url.URL) iter.Seq2[*feed.Entry, error]) (err error) {
	in, closed, err := s.openPackage(ctx, p)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := closed(); err == nil {
			err = cerr
		}
	}()
	text, at, err := in.manifest(p.Change.Loc)
	if err != nil {
		return &SourceError{aboutPackage(p, err)}
	}
	defer text.Close()
	for e, err := range read(ctx, text, at) {
		if err != nil {
			return &SourceError{aboutPackage(p, err)}
		}
		content, err := in.member(e.Change.Path)
		if err != nil {
			return &SourceError{aboutPackage(p, err)}
		}
		delete(s.packed, e.Change.Loc) // an older content of the resource is of no use
		old := e.Micros > 0 && !s.since.IsZero() && e.Micros <= s.since.UnixMicro()
		if content == nil || old || !s.wants(e) || !fetch.NewSum(e.Change.Hash).Verified() {
			continue
		}
		entry := *e
		entry.Position, entry.Change.Path = 0, "" // they mean something within the package only
		s.packed[e.Change.Loc] = content
		if s.taken = append(s.taken, entry); len(s.taken) == listBatch {
			if err := s.unpack(ctx); err != nil {
				return err
			}
		}
	}
	return s.unpack(ctx)
}

func (s *stocking) unpack(ctx context.Context) error {
	last, _ := newest(s.taken)
	last = slices.DeleteFunc(last, func(e feed.Entry) bool { return s.packed[e.Change.Loc] == nil })
	err := s.to.unpack(ctx, last, s.packed)
	s.taken = s.taken[:0]
	clear(s.packed)
	return err
}

// unpack makes files of contents that are in a package. Until somebody names their resources they
// are stock: to remove them is no deletion, because the source may never have had so much at once. A file that is right stays, and so does
// one that is newer, or may be: nobody would bring it back. A content that is not right in the package is left out.
func (d *Directory) unpack(ctx context.Context, entries []feed.Entry, packed map[string]*member) error {
	locs := make([]string, len(entries))
	for i := range entries {
		locs[i] = entries[i].Change.Loc
	}
	if err := d.home.Ledger.Place(d.opts.Names, locs...); err != nil {
		return err
	}
	return d.work(ctx, entries, func(ctx context.Context, e feed.Entry) (outcome, error) {
		file, had, err := d.home.Ledger.File(e.Change.Loc)
		if err != nil || had && (fits(&file, &e) || file.Entry.Micros >= e.Micros) {
			return outcome{}, err
		}
		name, err := d.path(e.Change.Loc)
		if _, invalid := errors.AsType[*resourcesync.Error](err); invalid {
			return outcome{}, nil // whoever names the resource says why it cannot be here
		}
		if err != nil {
			return outcome{}, err
		}
		t := &target{Directory: d, entry: e, name: name}
		o, err := t.fetch(ctx, fetch.Wanted{Change: &e.Change, Packed: packed[e.Change.Loc].Open, Only: true}, nil, nil)
		if o.failure != nil {
			return outcome{}, err
		}
		if o.come != nil {
			o.come.file.Stock = true
		}
		return o, err
	})
}
