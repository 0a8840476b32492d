package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"os"
	"strings"
	"time"

	"github.com/rshub/rshub/client"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/build"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/inventory/audit"
	"github.com/rshub/rshub/internal/inventory/auditor"
	"github.com/rshub/rshub/internal/inventory/digest"
	"github.com/rshub/rshub/internal/inventory/diskpages"
	"github.com/rshub/rshub/resourcesync"
)

const auditUsage = `rshub audit -set SET FILE compares a list of resources with what a hub knows of a set,
and prints every difference as JSON, one on each line. FILE has one resource on each
line, in any order, as JSON: {"loc": URI, "hash": "sha-256:HEX", "lastmod": DATETIME,
"length": BYTES}. Only loc is required. For FILE - the list comes from standard input.

  -set SET          the set
  -hub URL          the hub, default http://127.0.0.1:8080
  -token-file FILE  holds the token, if the hub has tokens; without it RSHUB_TOKEN does.
                    The token needs the right follow:SET
  -prefix URI       compare only resources whose loc begins with URI
  -since PLACE      when the list began to be made: a datetime or a cursor. Resources that
                    changed since are not reported. Default: when the command begins
  -settle DURATION  how long to wait before the differences are checked again, default 5s,
                    because a change may still be on its way to the hub
  -name NAME        the hub keeps under this name when the list last equalled what it knows,
                    and shows it to its operators; default "rshub audit"
  -skip-unknown     leave out resources that cannot be compared, because list and hub know
                    different things about them

A line of the answer has a member "difference", which is
  missing   the hub knows the resource, the list does not have it
  stale     the list has another version than the hub
  extra     the list has it, the hub does not know it, or knows that it was deleted
  unknown   both have it, but know nothing about it that can be compared
and loc, "own" with the resource of the list, and "hub" with that of the hub. Versions are
compared by the best evidence that both have: a hash, else lastmod and length.

The exit status is 0 if nothing differs, 1 if something does, 2 if the command failed. A
million lines take a temporary directory of some 100 MB (in TMPDIR) and little memory.
`

// errDifferences means that an audit has found differences. They are already
// printed.
var errDifferences = errors.New("there are differences")

// runAudit compares a list with what a hub knows.
func runAudit(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("rshub audit", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	set := flags.String("set", "", "")
	hub := flags.String("hub", "http://127.0.0.1:8080", "")
	tokenFile := flags.String("token-file", "", "")
	name := flags.String("name", "rshub audit", "")
	printer := &differencePrinter{stdout: stdout, stderr: stderr, counts: map[audit.Kind]int{}}
	var proof *audit.Proof
	o := auditor.Options{By: digest.ByContent, Look: func(look audit.Look) { printer.latest = look }, Proved: func(p audit.Proof) { proof = &p }}
	flags.StringVar(&o.Prefix, "prefix", "", "")
	flags.StringVar(&o.Since, "since", "", "")
	flags.DurationVar(&o.Settle, "settle", 5*time.Second, "")
	flags.BoolVar(&printer.skipUnknown, "skip-unknown", false, "")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		_, err = fmt.Fprint(stdout, auditUsage)
		return err
	case err != nil:
		return usageError(err.Error())
	case flags.NArg() != 1 || o.Settle < 0:
		return usageError("rshub audit -set SET FILE: rshub audit -h explains it")
	}
	if err := feed.CheckSet(*set); err != nil {
		return usageError("rshub audit -set SET FILE: " + err.Error())
	}
	o.Settle = max(o.Settle, 1) // 0 would be the default
	token, err := readToken(*tokenFile)
	if err != nil {
		return err
	}
	c, err := client.New(*hub, client.Options{Token: token, UserAgent: "rshub/" + build.Version(), Patience: time.Minute, Note: printer.printRetry})
	if err != nil {
		return usageError("-hub is a URL such as https://hub.example.org, and the token one word: " + err.Error())
	}
	list, cleanup, err := readList(ctx, flags.Arg(0), stdin)
	if err != nil {
		return err
	}
	defer cleanup() // the error does not matter: the list is temporary
	if err := printer.printDifferences(auditor.Audit(ctx, c, *set, auditor.Always(list), o)); err != nil {
		return hubError(err)
	}
	if proof != nil && *name != "" {
		if err := auditor.Tell(ctx, c, *name, *proof); err != nil {
			fmt.Fprintf(stderr, "rshub: the hub is not told that nothing differs: %v\n", hubError(err))
		}
	}
	return printer.printSummary()
}

// readToken returns the token in a file, or the one in the environment.
func readToken(file string) (string, error) {
	if file == "" {
		return os.Getenv("RSHUB_TOKEN"), nil
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("-token-file: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// readList reads a list into a temporary directory, which done removes.
func readList(ctx context.Context, file string, stdin io.Reader) (list *inventory.State, cleanup func() error, err error) {
	in := stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, nil, err
		}
		defer f.Close()
		in = f
	}
	list, cleanup, err = diskpages.Collect(ctx, "list", audit.List(in))
	if e, ok := errors.AsType[*resourcesync.Error](err); ok {
		err = fmt.Errorf("%s: %w", file, e)
	}
	return list, cleanup, err
}

// A differencePrinter prints differences.
type differencePrinter struct {
	stdout, stderr io.Writer
	skipUnknown    bool

	latest audit.Look // the newest look at the hub
	counts map[audit.Kind]int
}

// printDifferences prints differences, one on each line.
func (p *differencePrinter) printDifferences(differences iter.Seq2[audit.Difference, error]) error {
	var line []byte
	for d, err := range differences {
		if err != nil {
			return err
		}
		if p.counts[d.Kind]++; d.Kind == audit.Unknown && p.skipUnknown {
			continue
		}
		line = append(d.AppendJSON(line[:0]), '\n')
		if _, err := p.stdout.Write(line); err != nil {
			return err
		}
	}
	return nil
}

// printSummary writes a summary to standard error. It returns errDiffers if there are
// differences.
func (p *differencePrinter) printSummary() error {
	n := p.counts
	fmt.Fprintf(p.stderr, "rshub: %d missing, %d stale, %d extra, %d unknown; the hub knows %d resources at %v\n",
		n[audit.Missing], n[audit.Stale], n[audit.Extra], n[audit.Unknown], p.latest.Count, p.latest.Cursor)
	if !p.latest.Complete {
		fmt.Fprintln(p.stderr, "rshub: nobody has said that the hub knows all resources of the set")
	}
	differences := n[audit.Missing] + n[audit.Stale] + n[audit.Extra]
	if !p.skipUnknown {
		differences += n[audit.Unknown]
	}
	if differences > 0 {
		return errDifferences
	}
	return nil
}

// printRetry writes to standard error why the client tries again.
func (p *differencePrinter) printRetry(err error, _ time.Duration) {
	fmt.Fprintf(p.stderr, "rshub: %v; asking again\n", hubError(err))
}
