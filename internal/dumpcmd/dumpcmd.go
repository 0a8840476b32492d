// Package dumpcmd implements what the commands that create dumps share: flags, progress and the
// summary.
//
// Package internal/dump creates the files. The commands are rspublish dump and rsmirror dump.
package dumpcmd

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"path/filepath"
	"strings"
	"time"

	"github.com/rshub/rshub/internal/dump"
	"github.com/rshub/rshub/internal/progress"
	"github.com/rshub/rshub/internal/setting"
	"github.com/rshub/rshub/internal/source/reconcile"
)

// A Command creates dumps in the directory Out.
type Command struct {
	Program   string // name of the program, for messages
	Out       string
	Options   dump.Options
	MaxDelete reconcile.Bound
	JSON      bool // print the summary as JSON
	Line      *progress.Line
	Stdout    io.Writer
	Stderr    io.Writer
}

// Flags adds the flags that Help describes.
func (c *Command) Flags(fs *flag.FlagSet) {
	o := &c.Options
	o.Size = 512 << 20
	fs.StringVar(&o.URL, "out-url", "", "")
	fs.Func("package-size", "", func(s string) error {
		var n setting.Size
		err := n.Decode(s)
		o.Size = int64(n)
		return err
	})
	fs.IntVar(&o.Count, "package-count", 10_000, "")
	fs.BoolVar(&o.Full, "full", false, "")
	setting.DurationVar(fs, &o.Every, "full-every", 30*24*time.Hour, "")
	fs.IntVar(&o.Keep, "keep", 1, "")
	fs.Func("max-delete", "", func(s string) (err error) {
		c.MaxDelete, err = reconcile.ParseBound(s)
		return err
	})
	fs.BoolVar(&c.JSON, "json", false, "")
}

// Parse parses the arguments of a command: flags, then a source, which error messages call from,
// and OUT. It returns the source, or flag.ErrHelp for -h.
func (c *Command) Parse(fs *flag.FlagSet, args []string, from string) (string, error) {
	fs.SetOutput(io.Discard)
	if err := setting.ParseFlags(fs, args); err != nil {
		return "", err
	}
	switch args := fs.Args(); {
	case len(args) > 1 && strings.HasPrefix(args[len(args)-1], "-"):
		return "", fmt.Errorf("write flags before %s and OUT: got %s after them", from, args[len(args)-1])
	case len(args) != 2:
		return "", fmt.Errorf("want 2 arguments after the flags: %s and OUT", from)
	default:
		c.Out = args[1]
		return args[0], nil
	}
}

// Check reports an error if the flags are invalid for a dump of the directory from. An empty from
// means that the resources are elsewhere.
func (c *Command) Check(from string) error {
	o := &c.Options
	switch {
	case o.URL == "":
		return errors.New("-out-url URL is missing: the dumps need the URL at which OUT will be served")
	case o.Count < 1 || o.Count > 50_000:
		return errors.New("-package-count must be from 1 to 50000")
	case o.Every <= 0 || o.Keep < 1 || o.Size < 1:
		return errors.New("-full-every, -keep and -package-size must be positive")
	case from != "" && Within(c.Out, from):
		return fmt.Errorf("OUT %s is in %s: the dumps would be packed, too; use another directory", c.Out, from)
	}
	return o.Check()
}

// Within reports whether path is dir or is in it, after symbolic links are resolved.
func Within(path, dir string) bool {
	path, err1 := resolveSymlinks(path)
	dir, err2 := resolveSymlinks(dir)
	if err1 != nil || err2 != nil {
		return false
	}
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}

// resolveSymlinks returns the absolute path, with the symbolic links of its existing part resolved.
func resolveSymlinks(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if real, err := filepath.EvalSymlinks(path); err == nil || filepath.Dir(path) == path {
		return real, err
	}
	dir, err := resolveSymlinks(filepath.Dir(path))
	return filepath.Join(dir, filepath.Base(path)), err
}

// Run creates dumps of a listing, reports gaps on Stderr, and prints the summary. It returns a
// *reconcile.TooManyDeletions error if more resources would be deleted than MaxDelete allows.
func (c *Command) Run(ctx context.Context, list dump.Listing) (dump.Result, error) {
	o := c.Options
	o.Gap = func(g *dump.Gap) {
		c.Line.Clear()
		fmt.Fprintf(c.Stderr, "%s: %v\n", c.Program, g)
	}
	o.Allow = func(deleted, held, listed uint64) error {
		if c.MaxDelete.Allows(deleted, held, listed) {
			return nil
		}
		return &reconcile.TooManyDeletions{Deleted: deleted, Held: held, Listed: listed}
	}
	c.Line.Start()
	r, err := dump.Update(ctx, c.Out, c.countResources(list), o)
	c.Line.Clear()
	if err != nil {
		return r, err
	}
	if r.Delayed {
		c.Line.Note("%s: no new Resource Dump: it would lack unreadable resources, and destinations would delete them", c.Program)
	}
	switch {
	case c.JSON:
		err = json.NewEncoder(c.Stdout).Encode(r)
	case !c.Line.Quiet:
		_, err = fmt.Fprintln(c.Stdout, summary(&r))
	}
	return r, err
}

// countResources returns a Listing that shows how many resources were processed.
func (c *Command) countResources(list dump.Listing) dump.Listing {
	return func(ctx context.Context) iter.Seq2[*dump.Resource, error] {
		return func(yield func(*dump.Resource, error) bool) {
			n := 0
			for r, err := range list(ctx) {
				n++
				c.ShowCount(n, "resources")
				if !yield(r, err) {
					return
				}
			}
		}
	}
}

// ShowCount shows the number of processed items in the progress line.
func (c *Command) ShowCount(n int, of string) {
	text := func(time.Time) string { return progress.Group(n) + " " + of }
	c.Line.Update(text, text)
}

// summary describes the result of a run in one sentence.
func summary(r *dump.Result) string {
	listed := progress.Count(r.Listed, "resource")
	switch {
	case r.At.IsZero():
		return "no changes in " + listed
	case r.Full && r.Created+r.Updated+r.Deleted == 0:
		return fmt.Sprintf("packed %s in %s, %d bytes", listed, progress.Count(r.Packages, "package"), r.Bytes)
	}
	s := fmt.Sprintf("packed changes: %d created, %d updated, %d deleted of %s, in %s, %d bytes", r.Created, r.Updated, r.Deleted, listed, progress.Count(r.Packages, "package"), r.Bytes)
	if r.Full {
		s += ", with a new Resource Dump"
	}
	return s
}

// Help describes the flags.
const Help = `Packages
  -out-url URL      URL at which OUT will be served (required); must be the same in each run
  -package-size N   maximum size of a package, such as 100MiB (default 512MiB); a larger
                    resource has a package of its own
  -package-count N  maximum number of resources in a package, up to 50000 (default 10000)
  -full             create a new Resource Dump now
  -full-every DURATION
                    create a new Resource Dump when the newest is this old (default 30d).
                    Other runs only add changes to the Change Dump
  -keep N           keep N Resource Dumps and the changes since then, and list them in the
                    archives (default 1)
  -max-delete BOUND maximum number of deletions in one run: a number, a share such as 20%,
                    or all. If there are more, nothing is published. Default: ten or 10%,
                    whichever is more, but none if the source is empty
`
