package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"path/filepath"
	"strings"
	"time"

	"github.com/rshub/rshub/internal/dump"
	"github.com/rshub/rshub/internal/dumpcmd"
	"github.com/rshub/rshub/internal/idn"
	"github.com/rshub/rshub/internal/progress"
	"github.com/rshub/rshub/internal/setting"
	"github.com/rshub/rshub/internal/source/directory"
	"github.com/rshub/rshub/internal/source/harvest/oaipmh"
	"github.com/rshub/rshub/internal/source/reconcile"
)

// dumpConfig has the settings of rspublish dump.
type dumpConfig struct {
	dumpcmd.Command
	flags      *flag.FlagSet
	source     string // the directory, or the URL of the repository
	files      directoryFlags
	repository *oaipmh.Harvest // nil if a directory is packed
	login      config          // config with the login for the repository
}

// parseDump parses the arguments of rspublish dump. It returns flag.ErrHelp for -h.
func parseDump(args []string, env func(string) string) (*dumpConfig, error) {
	c := &dumpConfig{flags: flag.NewFlagSet("rspublish dump", flag.ContinueOnError)}
	records := &oaipmh.Harvest{Repository: &oaipmh.Repository{}}
	c.Flags(c.flags)
	c.files.defineFlags(c.flags)
	c.Line = new(progress.Line)
	c.flags.BoolVar(&c.Line.Quiet, "q", false, "print only errors")
	defineRecordFlags(c.flags, &records.Prefix, &records.Set)
	var err error
	if c.source, err = c.Parse(c.flags, args, "DIRECTORY or URL"); err != nil {
		return c, err
	}
	if !strings.HasPrefix(c.source, "https://") && !strings.HasPrefix(c.source, "http://") {
		if records.Prefix != "" || records.Set != "" {
			return c, errors.New("-prefix and -oai-set require a repository, whose URL starts with https:// or http://")
		}
		if err := c.files.check(); err != nil {
			return c, err
		}
		return c, c.Check(c.source)
	}
	if c.files.base != "" || c.files.Exclude != nil {
		return c, errors.New("-base and -exclude require a directory; the records of a repository have URLs")
	}
	c.repository = records
	if records.Repository.URL, err = c.login.extractLogin(c.source, env("RSPUBLISH_SOURCE_USER")); err != nil {
		return c, err
	}
	return c, c.Check("")
}

// directoryFlags has the flags for listing a directory and for the URLs of its files.
type directoryFlags struct {
	directory.Options
	base string
}

// defineFlags defines the flags, which set fields of d.
func (d *directoryFlags) defineFlags(fs *flag.FlagSet) {
	fs.StringVar(&d.base, "base", "", "`URL`: URL of the directory: the URL of the file a/b is URL/a/b")
	fs.Func("exclude", "`PATTERN`: skip matching files, such as *.tmp or drafts/*; may be repeated", func(pattern string) error {
		d.Exclude = append(d.Exclude, pattern)
		return nil
	})
	fs.BoolVar(&d.IncludeTemporary, "temporary", false, "also list temporary files of editors")
	setting.DurationVar(fs, &d.Settle, "settle", time.Second, "`DURATION`: do not read files that changed within this time (default 1s)")
}

// check validates the flags for a directory, and normalizes the base.
func (d *directoryFlags) check() error {
	base, err := idn.URL(d.base)
	if err == nil {
		d.base = base
		err = directory.CheckBase(base)
	}
	switch {
	case d.base == "":
		return errors.New("missing -base URL, the URL of the directory: the URL of the file a/b is URL/a/b")
	case err != nil:
		return fmt.Errorf("-base: %w", err)
	case d.Settle < 0:
		return errors.New("-settle must not be negative")
	}
	return nil
}

// runDump runs rspublish dump and returns its exit code.
func (p *program) runDump(ctx context.Context, args []string) int {
	c, err := parseDump(args, p.env)
	if err != nil {
		return p.reportParseError(err, c.flags, dumpHelp)
	}
	c.Program, c.Stdout, c.Stderr = "rspublish", p.stdout, p.stderr
	c.Line.W, c.Line.Terminal, c.Line.Now = p.stderr, p.terminal, p.now
	return p.finish(ctx, p.dump(ctx, c), false)
}

// dump packs a directory or the records of a repository.
func (p *program) dump(ctx context.Context, c *dumpConfig) error {
	list, printStats := p.listRecords(c), func() {}
	if c.repository == nil {
		c.files.Ledger = filepath.Join(c.Out, dump.HashesDir)
		tree, err := directory.Open(c.source, c.files.base, c.files.Options)
		if err != nil {
			return err
		}
		c.Options.Compare = directory.Compare
		list, printStats = listFiles(tree), func() { printSkipped(c.Line, tree.Stats()) }
	}
	r, err := c.Run(ctx, list)
	if err != nil {
		return c.login.explainError(err)
	}
	if printStats(); r.Gaps > 0 {
		return gapsError(r.Gaps)
	}
	return nil
}

// listFiles returns a listing of the files of a directory with their contents.
func listFiles(tree *directory.Tree) dump.Listing {
	return func(ctx context.Context) iter.Seq2[*dump.Resource, error] {
		return func(yield func(*dump.Resource, error) bool) {
			contents, err := tree.Contents()
			if err != nil {
				yield(nil, err)
				return
			}
			defer contents.Close() // ignore the error, because it is only read
			for e, err := range tree.Resources(ctx) {
				if gap, ok := errors.AsType[*reconcile.Gap](err); ok {
					err = &dump.Gap{Loc: gap.Loc, Err: gap.Err}
				}
				var r *dump.Resource
				if err == nil {
					r = &dump.Resource{Change: e.Change, Open: func() (io.ReadCloser, error) { return contents.Open(e.Change.Loc) }}
				}
				if !yield(r, err) {
					return
				}
			}
		}
	}
}
