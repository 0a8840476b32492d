package relay

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/harvest"
	"github.com/rshub/rshub/inventory/audit"
	"github.com/rshub/rshub/reconcile"
	"github.com/rshub/rshub/resourcesync"
)

// A spool is a list of a source, read to its end and kept in a temporary file. So a list
// that breaks off is found before anything is compared, and a list is read once only.
type spool struct {
	file *os.File
	gaps []*reconcile.Gap
}

// maxGaps is how many gaps a spool keeps; more are one gap of which no loc is known.
const maxGaps = 1000

func (r *Relay) spool(list iter.Seq2[*feed.Entry, error]) (*spool, error) {
	f, err := os.CreateTemp(r.opts.Dir, "relay-*.jsonl")
	if err != nil {
		return nil, fmt.Errorf("make a temporary file: %w", err)
	}
	s := &spool{file: f}
	if err := s.fill(list); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *spool) fill(list iter.Seq2[*feed.Entry, error]) error {
	out := bufio.NewWriterSize(s.file, 256<<10)
	var line []byte
	for e, err := range list {
		if gap, ok := errors.AsType[*reconcile.Gap](err); ok {
			if len(s.gaps) == maxGaps {
				gap = &reconcile.Gap{Err: errors.New("and more")}
			}
			if len(s.gaps) <= maxGaps {
				s.gaps = append(s.gaps, gap)
			}
			continue
		}
		if err != nil {
			return err
		}
		line = append(resourcesync.AppendJSONMembers(append(line[:0], '{'), &e.Change), '}', '\n')
		if _, err := out.Write(line); err != nil {
			return fmt.Errorf("keep the list of the source: %w", err)
		}
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("keep the list of the source: %w", err)
	}
	return nil
}

// resources yields what was kept.
func (s *spool) resources(more []*reconcile.Gap) reconcile.Listing {
	return func(context.Context) iter.Seq2[*feed.Entry, error] {
		return func(yield func(*feed.Entry, error) bool) {
			for _, gaps := range [][]*reconcile.Gap{s.gaps, more} {
				for _, gap := range gaps {
					if !yield(nil, gap) {
						return
					}
				}
			}
			if _, err := s.file.Seek(0, io.SeekStart); err != nil {
				yield(nil, fmt.Errorf("read the list of the source again: %w", err))
				return
			}
			for e, err := range audit.List(bufio.NewReaderSize(s.file, 256<<10)) {
				if !yield(e, err) || err != nil {
					return
				}
			}
		}
	}
}

// close removes the file.
func (s *spool) close() {
	_ = s.file.Close()
	_ = os.Remove(s.file.Name())
}

// compare compares the list of a source with the hub, and publishes what differs. Of what
// the hub has and the list has not, keep says what must not be deleted yet; nil: nothing.
// keep is told whether the list is whole: if not, what is missing is not known.
func (r *Relay) compare(ctx context.Context, list iter.Seq2[*feed.Entry, error], keep func(missing []string, whole bool) []string) (Result, error) {
	s, err := r.spool(list)
	if err != nil {
		return Result{}, err
	}
	defer s.close()
	o := reconcile.Options{MaxDelete: r.opts.MaxDelete, Doubles: true, Dir: r.opts.Dir}
	var kept []*reconcile.Gap
	if keep != nil {
		var missing []string
		dry := o
		dry.Dry = func(c *resourcesync.Change) error {
			if c.Change == resourcesync.Deleted {
				missing = append(missing, c.Loc)
			}
			return nil
		}
		if _, err := r.sync(ctx, s.resources(nil), dry); err != nil {
			return Result{}, err // also a *reconcile.TooMany: so many are not even remembered
		}
		for _, loc := range keep(missing, len(s.gaps) == 0) {
			kept = append(kept, &reconcile.Gap{Loc: loc, Err: errors.New("it was missed for the first time")})
		}
	}
	for _, gap := range s.gaps {
		r.opts.Gap(gap)
	}
	begun := r.opts.Now()
	res, err := r.sync(ctx, s.resources(kept), o)
	if err != nil {
		return Result{}, err
	}
	r.st.Full = begun
	return Result{
		How: Compared, Created: res.Created, Updated: res.Updated, Deleted: res.Deleted,
		Listed: res.Listed, Unknown: res.Unknown, Gaps: len(s.gaps), Kept: res.Kept, Cursor: res.Cursor, Complete: res.Complete,
	}, nil
}

func (r *Relay) sync(ctx context.Context, list reconcile.Listing, o reconcile.Options) (reconcile.Result, error) {
	source := reconcile.New(r.hub, list, o)
	defer source.Close() // what it keeps is temporary
	return source.Sync(ctx)
}

// list looks at a source that only lists its resources.
func (r *Relay) list(ctx context.Context, full bool) (Result, error) {
	seen := r.st.Seen
	if full {
		seen = harvest.Seen{} // a server that says unchanged is not believed for ever
	}
	trust := r.st.Trust.begin()
	res, err := r.compare(ctx, r.believed(r.lister.Since(ctx, r.st.Source.ResourceList, &seen), trust), nil)
	if errors.Is(err, harvest.ErrUnchanged) {
		return Result{How: Unchanged}, nil
	}
	if err != nil {
		return res, err
	}
	r.st.Seen, r.st.Trust = seen, trust.end(r.opts.Note)
	return res, nil
}

// believed leaves out what need not be believed of a list.
func (r *Relay) believed(list iter.Seq2[*feed.Entry, error], t *trusting) iter.Seq2[*feed.Entry, error] {
	return func(yield func(*feed.Entry, error) bool) {
		for e, err := range list {
			if err == nil {
				t.see(&e.Change)
				if t.was.distrusts() {
					e.Change.Lastmod = time.Time{}
				}
				pass(&e.Change)
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// pass makes what a source says of a resource what the hub may say of it. The resource is
// the source's own, not a copy, so a link rel=via, which leads from a copy to the original,
// is right only if the source has it already (core section 14.8). What is left out means
// something only within a dump.
func pass(c *resourcesync.Change) {
	c.Path = ""
	for i := range c.Links {
		c.Links[i].Path = ""
	}
}

func (r *Relay) odd(document string, mistake *resourcesync.Error) {
	r.opts.Note(fmt.Sprintf("%s: %v", document, mistake))
}
