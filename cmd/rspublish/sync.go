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

// runSync runs rspublish sync or watch, and returns the exit code.
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

// A syncRun is one run of rspublish sync or watch.
type syncRun struct {
	*program
	cfg         *syncConfig
	bar         *report
	tree        *directory.Tree // directory to list; nil for other sources
	listVersion harvest.Seen    // versions of the documents of a list at a URL

	synced bool // a sync has succeeded in this run
}

// run syncs the source once, or watches it until ctx is canceled.
func (s *syncRun) run(ctx context.Context) (err error) {
	set, err := s.newSet(&s.cfg.config, s.cfg.prefix, s.bar.Note)
	if err != nil {
		return err
	}
	o := reconcile.Options{
		Prefix:          s.cfg.prefix,
		MaxDelete:       s.cfg.maxDelete,
		PublishUnknown:  s.cfg.unknown,
		AllowDuplicates: s.cfg.kind == webSource,
		Gap: func(g *reconcile.Gap) {
			s.bar.Clear()
			fmt.Fprintf(s.stderr, "rspublish: %v\n", g)
		},
		OnPlan:    func(r reconcile.Result) { s.bar.start(s.cfg.source, false, r.Changes()) },
		OnPublish: func(n int) { s.bar.update(s.bar.done + n) },
	}
	if s.cfg.dryRun {
		out := bufio.NewWriter(s.stdout)
		defer func() { err = cmp.Or(err, out.Flush()) }()
		var line []byte
		o.DryRun = func(c *resourcesync.Change) error {
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
	defer source.Close() // ignore the error, because its files are temporary
	if s.cfg.watch {
		return s.watch(ctx, source)
	}
	return s.sync(ctx, source)
}

// sync syncs the source once, and prints the summary.
func (s *syncRun) sync(ctx context.Context, source *reconcile.Source) error {
	r, err := source.Sync(ctx)
	s.bar.Clear()
	if err != nil {
		return s.cfg.explainError(relay.SetMoved(err, &s.listVersion))
	}
	s.synced = true
	s.summarize(&r)
	if r.Gaps > 0 {
		return gapsError(r.Gaps)
	}
	return nil
}

// readToll sets o.Toll to the deletions of earlier runs within a day, and arranges that updates
// are stored. Without a directory for the state, -max-delete applies to this run only.
func (s *syncRun) readToll(o *reconcile.Options) error {
	dir, err := s.stateDir()
	if err != nil || s.cfg.dryRun {
		return nil // openState has printed a warning
	}
	path := filepath.Join(dir, "deletions.json")
	o.Deletions = new(reconcile.Deletions)
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, o.Deletions)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read number of deletions within a day: %w; remove %s to reset it", err, path)
	}
	o.Now = s.now
	o.SaveDeletions = func() error { return errors.Join(os.MkdirAll(dir, 0o700), storeJSON(path, o.Deletions)) }
	return nil
}

// listing returns the listing of the source.
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

// withoutLastmod returns a listing without the lastmod of list.
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

// lineListing returns the listing in a file or in standard input, plain or gzipped. It can be
// read only once.
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
				yield(nil, fmt.Errorf("%s: got XML, want JSON lines; to sync a list in XML, such as a sitemap, use its URL: rspublish sync -set NAME https://…", in.name))
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

// openState creates and locks the directory with the state of the source, and removes temporary
// files of killed runs. The state of a list is only the number of deletions within a day, which
// a dry run does not need.
func (s *syncRun) openState(o *reconcile.Options) (release func(), err error) {
	if s.cfg.kind != directorySource {
		return s.lockListState()
	}
	release = func() {}
	dir, err := s.stateDir()
	if err != nil {
		s.bar.Note("rspublish: warning: no directory for the state, so all files are read in each run; use -state DIR: %v", err)
		return release, nil
	}
	if dumpcmd.Within(dir, s.cfg.source) {
		return nil, failf(exitUsage, "-state: %s is in the synced directory, and would be published", dir)
	}
	if release, err = lockState(filepath.Join(dir, "lock")); err != nil {
		return nil, err
	}
	s.cfg.files.Ledger, o.Dir = filepath.Join(dir, "hashes"), filepath.Join(dir, "lists") // the directory may have files of other programs
	if err = os.MkdirAll(o.Dir, 0o700); err == nil {
		err = reconcile.Sweep(o.Dir)
	}
	if err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// lockListState locks the state of a list. If the state cannot be written, as on a read-only file
// system, it prints a warning and returns nil: a list can be synced unless resources must be
// deleted.
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
		s.bar.Note("rspublish: warning: deletions within a day cannot be counted: %v", err)
		return release, nil
	}
	return locked, nil
}

// stateDir returns the directory for the state: the value of -state, or a directory in the cache
// that is derived from source and set.
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
