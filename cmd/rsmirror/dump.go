package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"strings"
	"time"

	"github.com/rshub/rshub/internal/dump"
	"github.com/rshub/rshub/internal/dumpcmd"
	"github.com/rshub/rshub/internal/mirror/home"
	"github.com/rshub/rshub/internal/mirror/ledger"
	"github.com/rshub/rshub/internal/progress"
	"github.com/rshub/rshub/internal/setting"
	"github.com/rshub/rshub/resourcesync"
)

// runDump runs rsmirror dump and returns its exit code.
func runDump(ctx context.Context, args []string, env func(string) string, stdout, stderr io.Writer) int {
	c, cfg := &dumpcmd.Command{Program: "rsmirror", Stdout: stdout, Stderr: stderr}, &config{once: true}
	fs := flag.NewFlagSet("rsmirror dump", flag.ContinueOnError)
	c.Flags(fs)
	setting.DurationVar(fs, &cfg.retry, "retry", 10*time.Minute, "")
	fs.BoolVar(&cfg.quiet, "q", false, "")
	var err error
	if cfg.dir, err = c.Parse(fs, args, "DIR"); err == nil {
		err = c.Check(cfg.dir)
	}
	if err != nil {
		return reportParseError(err, stdout, stderr)
	}
	p := newProgram(cfg, env, stdout, stderr)
	c.Line = &p.report.Line
	return p.reportError(ctx, p.dump(ctx, c))
}

// dump packs the files of a mirror.
func (p *program) dump(ctx context.Context, c *dumpcmd.Command) (err error) {
	h, err := home.OpenOrCopy(ctx, p.dir, p.retry)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	if err := p.loadSettings(h); err != nil {
		return err
	}
	if p.settings.All {
		return fmt.Errorf("%s: has a mirror of each set of a hub; use the directory of one of them", p.dir)
	}
	if p.settings.To != "" {
		return fmt.Errorf("%s: mirror was created with -to, and has no contents", p.dir)
	}
	stale := 0
	r, err := c.Run(ctx, listFiles(h, &stale))
	if err == nil && stale > 0 {
		c.Line.Note("rsmirror: packed an older version of %s, because the mirror could not fetch the newest", progress.Count(stale, "resource"))
	}
	if err == nil && r.Gaps+stale > 0 {
		err = errDifferences
	}
	return err
}

// listFiles lists the files of a mirror by loc. A resource that the mirror could not fetch is a
// gap, unless the mirror has an older version, which increments *stale.
func listFiles(h *home.Home, stale *int) dump.Listing {
	return func(ctx context.Context) iter.Seq2[*dump.Resource, error] {
		return func(yield func(*dump.Resource, error) bool) {
			next, stop := iter.Pull2(h.Ledger.Failures(ctx))
			defer stop()
			failure, err, more := next()
			// yieldFailures yields the failures before loc, or all of them if loc is empty.
			// It reports whether the listing continues.
			yieldFailures := func(loc string) bool {
				for more && err == nil && (loc == "" || failure.Loc < loc) {
					if !yield(nil, &dump.Gap{Loc: failure.Loc, Err: errors.New(failure.Reason)}) {
						return false
					}
					failure, err, more = next()
				}
				return err == nil || yield(nil, err)
			}
			for f, ferr := range h.Ledger.Files(ctx) {
				if ferr != nil {
					yield(nil, ferr)
					return
				}
				if !yieldFailures(f.Loc) {
					return
				}
				if more && failure.Loc == f.Loc {
					*stale++
					failure, err, more = next()
				}
				if !yield(newResource(h, f), nil) {
					return
				}
			}
			yieldFailures("")
		}
	}
}

// newResource returns the resource in a file of a mirror.
func newResource(h *home.Home, f ledger.File) *dump.Resource {
	r := &dump.Resource{Change: f.Entry.Change, Open: func() (io.ReadCloser, error) { return h.Root.Open(f.Path) }}
	c := &r.Change
	c.Loc, c.Length = f.Loc, &f.Size
	if resourcesync.Digest(c.Hash, "sha-256") == "" {
		c.Hash = strings.TrimSpace(c.Hash + " sha-256:" + f.SHA256)
	}
	return r
}
