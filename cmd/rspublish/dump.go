package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"path/filepath"
	"time"

	"github.com/rshub/rshub/dialect/dump"
	"github.com/rshub/rshub/internal/dumping"
	"github.com/rshub/rshub/internal/progress"
	"github.com/rshub/rshub/internal/setting"
	"github.com/rshub/rshub/source/directory"
	"github.com/rshub/rshub/source/reconcile"
)

// dumpConfig is what the command line says to dump.
type dumpConfig struct {
	dumping.Command
	dir, base string
	directory directory.Options
}

// parseDump reads the command line of dump, after that word. It returns flag.ErrHelp for -h.
func parseDump(args []string) (*dumpConfig, error) {
	c := &dumpConfig{}
	fs := flag.NewFlagSet("rspublish dump", flag.ContinueOnError)
	c.Flags(fs)
	c.Line = new(progress.Line)
	fs.StringVar(&c.base, "base", "", "")
	fs.Func("exclude", "", func(pattern string) error {
		c.directory.Exclude = append(c.directory.Exclude, pattern)
		return nil
	})
	fs.BoolVar(&c.directory.Temporary, "temporary", false, "")
	setting.DurationVar(fs, &c.directory.Settle, "settle", time.Second, "")
	fs.BoolVar(&c.Line.Quiet, "q", false, "")
	var err error
	c.dir, err = c.Parse(fs, args, "DIRECTORY")
	switch {
	case err != nil:
		return nil, err
	case c.base == "":
		return nil, errors.New("-base URL is missing: under which URL are the files of the directory? The file a/b is at URL/a/b")
	case directory.CheckBase(c.base) != nil:
		return nil, fmt.Errorf("-base: %w", directory.CheckBase(c.base))
	case c.directory.Settle < 0:
		return nil, errors.New("a duration must not be negative")
	}
	return c, c.Check(c.dir)
}

// runDump runs the command dump.
func (p *program) runDump(ctx context.Context, args []string) int {
	c, err := parseDump(args)
	if err != nil {
		return p.unparsed(err, "rspublish dump", dumpHelp)
	}
	c.Program, c.Stdout, c.Stderr = "rspublish", p.stdout, p.stderr
	c.Line.W, c.Line.Terminal, c.Line.Now = p.stderr, p.terminal, p.now
	return p.ended(ctx, p.dump(ctx, c), false)
}

func (p *program) dump(ctx context.Context, c *dumpConfig) error {
	c.directory.Ledger = filepath.Join(c.Out, dump.HashesDir)
	tree, err := directory.Open(c.dir, c.base, c.directory)
	if err != nil {
		return err
	}
	c.Options.Compare = directory.Compare
	r, err := c.Run(ctx, files(tree))
	if err != nil {
		return new(config).explained(err)
	}
	if s := tree.Stats(); s.Links > 0 || s.Special > 0 {
		c.Line.Note("rspublish: left out: %d symbolic links, %d devices, sockets and pipes", s.Links, s.Special)
	}
	if r.Gaps > 0 {
		return gaps(r.Gaps)
	}
	return nil
}

// files lists the files of a directory with their contents.
func files(tree *directory.Tree) dump.Listing {
	return func(ctx context.Context) iter.Seq2[*dump.Resource, error] {
		return func(yield func(*dump.Resource, error) bool) {
			contents, err := tree.Contents()
			if err != nil {
				yield(nil, err)
				return
			}
			defer contents.Close() // it is only read
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
