package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/dumpcmd"
	"github.com/rshub/rshub/internal/inventory/audit"
	"github.com/rshub/rshub/internal/source/directory"
	"github.com/rshub/rshub/internal/source/harvest"
	"github.com/rshub/rshub/internal/source/reconcile"
	"github.com/rshub/rshub/internal/source/relay"
	"github.com/rshub/rshub/resourcesync"
)

func (p *program) runSync(ctx context.Context, watch bool, args []string) int {
	cfg, err := parseSync(watch, args, p.env)
	if err != nil {
		return p.reportParseError(err, cfg.flags, syncHelp)
	}
	s := &syncRun{program: p, cfg: cfg, bar: p.newProgressReport(&cfg.config)}
	err = s.run(ctx)
	s.bar.Clear()
	return p.finish(ctx, err, watch && s.synced)
}

type syncRun struct {
	*program
	cfg         *syncConfig
	bar         *report
	tree        *directory.Tree // the tree of a directory
	listVersion harvest.Seen    // what the list at a URL was read from

	synced bool // the hub was up to date once in this run
}

func (s *syncRun) run(ctx context.Context) (err error) {
	set, err := s.newSet(&s.cfg.config, s.cfg.prefix, s.bar.Note)
	if err != nil {
		return err
	}
	o := reconcile.Options{
		Prefix:    s.cfg.prefix,
		MaxDelete: s.cfg.maxDelete,
		Unknown:   s.cfg.unknown,
		Doubles:   s.cfg.kind == webSource,
		Gap: func(g *reconcile.Gap) {
			s.bar.Clear()
			fmt.Fprintf(s.stderr, "rspublish: %v\n", g)
		},
		Planned:   func(r reconcile.Result) { s.bar.start(s.cfg.source, false, r.Changes()) },
		Published: func(n int) { s.bar.update(s.bar.done + n) },
	}
	if s.cfg.dryRun {
		out := bufio.NewWriter(s.stdout)
		defer func() { err = cmp.Or(err, out.Flush()) }()
		var line []byte
		o.Dry = func(c *resourcesync.Change) error {
			line = append(resourcesync.AppendJSONMembers(append(line[:0], '{'), c), '}', '\n')
			_, err := out.Write(line)
			return err
		}
	}
	release, err := s.openState(&o)
	if err != nil {
		return err
	}
	defer release()
	list, err := s.listing(ctx)
	if err != nil {
		return err
	}
	if err := s.readToll(&o); err != nil {
		return err
	}
	source := reconcile.New(set, list, o)
	defer source.Close() // what it keeps is temporary
	if s.cfg.watch {
		return s.watch(ctx, source)
	}
	return s.sync(ctx, source)
}

func (s *syncRun) sync(ctx context.Context, source *reconcile.Source) error {
	r, err := source.Sync(ctx)
	s.bar.Clear()
	if err != nil {
		return s.cfg.explainError(relay.NameMove(err, &s.listVersion))
	}
	s.synced = true
	s.summarize(&r)
	if r.Gaps > 0 {
		return gapsError(r.Gaps)
	}
	return nil
}

// readToll reads the toll of earlier runs of the day, and arranges that it is stored.
// Without a place for it, -max-delete counts for one run only.
func (s *syncRun) readToll(o *reconcile.Options) error {
	dir, err := s.stateDir()
	if err != nil || s.cfg.dryRun {
		return nil // openState has warned
	}
	path := filepath.Join(dir, "deletions.json")
	o.Toll = new(reconcile.Toll)
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, o.Toll)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read how many resources were deleted within a day: %w: remove %s, and they count as none", err, path)
	}
	o.Now = s.now
	o.Counted = func() error { return errors.Join(os.MkdirAll(dir, 0o700), storeJSON(path, o.Toll)) }
	return nil
}

func (s *syncRun) listing(ctx context.Context) (list reconcile.Listing, err error) {
	switch s.cfg.kind {
	case directorySource:
		if s.tree, err = directory.Open(s.cfg.source, s.cfg.files.base, s.cfg.files.Options); err != nil {
			return nil, err
		}
		list = s.tree.Resources
	case webSource:
		list = s.webListing()
	default:
		list, err = s.lineListing(ctx)
	}
	if s.cfg.noLastmod {
		list = withoutLastmod(list)
	}
	return list, err
}

func withoutLastmod(list reconcile.Listing) reconcile.Listing {
	return func(ctx context.Context) iter.Seq2[*feed.Entry, error] {
		return func(yield func(*feed.Entry, error) bool) {
			for e, err := range list(ctx) {
				if e != nil {
					bare := *e
					bare.Change.Lastmod = time.Time{}
					e = &bare
				}
				if !yield(e, err) {
					return
				}
			}
		}
	}
}

// lineListing returns the list in a file, or in standard input, plain or gzipped. It can be read
// once.
func (s *syncRun) lineListing(ctx context.Context) (reconcile.Listing, error) {
	in := &input{name: "standard input", stream: interruptibleReader(ctx, s.stdin)}
	if s.cfg.source != "-" {
		f, err := os.Open(s.cfg.source)
		if err != nil {
			return nil, err
		}
		in = &input{name: s.cfg.source, stream: f, file: f}
	}
	return func(context.Context) iter.Seq2[*feed.Entry, error] {
		return func(yield func(*feed.Entry, error) bool) {
			defer in.close()
			plain, err := decompress(in.stream)
			if err != nil {
				yield(nil, fmt.Errorf("%s: %w", in.name, err))
				return
			}
			if first, _ := firstByte(plain); first == '<' {
				yield(nil, fmt.Errorf("%s: it is XML; a list in XML, such as a sitemap, is read from a URL: rspublish sync -set NAME https://…", in.name))
				return
			}
			for e, err := range audit.List(plain) {
				if err != nil {
					err = fmt.Errorf("%s: %w; nothing was published", in.name, err)
				}
				if !yield(e, err) {
					return
				}
			}
		}
	}, nil
}

// openState makes and locks the directory with the state of the source, and removes temporary
// files of a killed run. The state of a list is only how many resources were deleted within a
// day: a dry run does not need it.
func (s *syncRun) openState(o *reconcile.Options) (release func(), err error) {
	if s.cfg.kind != directorySource {
		return s.lockListState()
	}
	release = func() {}
	dir, err := s.stateDir()
	if err != nil {
		s.bar.Note("rspublish: warning: there is no place to remember what is listed, so all is read each time (-state gives one): %v", err)
		return release, nil
	}
	if dumpcmd.Within(dir, s.cfg.source) {
		return nil, failf(exitUsage, "-state: %s is in the directory that is synced, and would be published with it", dir)
	}
	if release, err = lockState(filepath.Join(dir, "lock")); err != nil {
		return nil, err
	}
	s.cfg.files.Ledger, o.Dir = filepath.Join(dir, "hashes"), filepath.Join(dir, "lists") // the state may have files of others beside it
	if err = os.MkdirAll(o.Dir, 0o700); err == nil {
		err = reconcile.Sweep(o.Dir)
	}
	if err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// lockListState locks the state of a list. Without a place for it, such as on a file system that is
// read-only, a list can be synced until resources are to be deleted.
func (s *syncRun) lockListState() (release func(), err error) {
	release = func() {}
	dir, err := s.stateDir()
	if err != nil || s.cfg.dryRun {
		return release, nil
	}
	locked := release
	if err = os.MkdirAll(dir, 0o700); err == nil {
		locked, err = lockState(filepath.Join(dir, "lock"))
	}
	switch {
	case errors.Is(err, errLocked):
		return nil, err
	case err != nil:
		s.bar.Note("rspublish: warning: deletions cannot be counted: %v", err)
		return release, nil
	}
	return locked, nil
}

// stateDir returns the directory for the state: the one that the user names, or one of this
// source and set.
func (s *syncRun) stateDir() (string, error) {
	source := s.cfg.source
	if s.cfg.kind == directorySource {
		abs, err := filepath.Abs(source)
		if err != nil {
			return "", err
		}
		source = abs
	}
	return s.statePath(s.cfg.state, "sync", s.cfg.hub, s.cfg.set, source)
}
