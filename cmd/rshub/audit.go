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

const auditUsage = `Usage: rshub audit [flags] -set SET FILE

Compare a list of resources with the inventory of a set, and print each difference as a
JSON object on a line of its own. FILE has one JSON object per line, in any order:
  {"loc": URI, "hash": "sha-256:HEX", "lastmod": DATETIME, "length": BYTES}
Only loc is required. If FILE is -, the list is read from standard input.

  -set SET          name of the set (required)
  -hub URL          URL of the hub (default http://127.0.0.1:8080)
  -token-file FILE  file with a token that has the right follow:SET; default: the token
                    in RSHUB_TOKEN
  -prefix URI       compare only resources whose loc starts with URI
  -since POSITION   datetime or cursor at which the creation of the list started; changes
                    after it are not reported (default: the start of the command)
  -settle DURATION  wait this long before checking differences again, because changes may
                    still be on their way to the hub (default 5s)
  -name NAME        name under which the hub shows its operators when the list was last
                    equal to the inventory (default "rshub audit")
  -skip-unknown     do not report resources for which list and hub have no comparable
                    metadata

Each line has the members loc, "own" (the resource in the list), "hub" (the resource at
the hub) and "difference", which is one of
  missing   only the hub has the resource
  stale     list and hub have different versions of the resource
  extra     only the list has the resource; the hub does not know it, or it was deleted
  unknown   both have the resource, but no comparable metadata
Versions are compared by the strongest evidence that both have: a hash, else lastmod and
length.

The exit code is 0 if there are no differences, 1 if there are, 2 if the command failed.
A million lines need about 100 MB in a temporary directory (TMPDIR), and little memory.

Example:
  rshub audit -hub https://hub.example.org -set articles resources.ndjson
`

// errDifferences reports that an audit found differences, which are already printed.
var errDifferences = errors.New("there are differences")

// runAudit compares a list of resources with the inventory of a set.
func runAudit(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("rshub audit", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	set := flags.String("set", "", "")
	hub := flags.String("hub", "http://127.0.0.1:8080", "")
	tokenFile := flags.String("token-file", "", "")
	name := flags.String("name", "rshub audit", "")
	printer := &differencePrinter{stdout: stdout, stderr: stderr, counts: map[audit.Kind]int{}}
	var proof *audit.Proof
	o := auditor.Options{By: digest.ByContent, OnSummary: func(look audit.Summary) { printer.latest = look }, OnProof: func(p audit.Proof) { proof = &p }}
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
		return usageError("rshub audit -set SET FILE: invalid arguments; run 'rshub audit -h' for usage")
	}
	if err := feed.CheckSet(*set); err != nil {
		return usageError("rshub audit -set SET FILE: " + err.Error())
	}
	o.Settle = max(o.Settle, 1) // zero means the default
	token, err := readToken(*tokenFile)
	if err != nil {
		return err
	}
	c, err := client.New(*hub, client.Options{Token: token, UserAgent: "rshub/" + build.Version(), RetryTimeout: time.Minute, OnRetry: printer.printRetry})
	if err != nil {
		return usageError("-hub, -token-file: want a URL such as https://hub.example.org, and a token of one word: " + err.Error())
	}
	list, cleanup, err := readList(ctx, flags.Arg(0), stdin)
	if err != nil {
		return err
	}
	defer cleanup() // ignore the error, because the files are temporary
	if err := printer.printDifferences(auditor.Audit(ctx, c, *set, auditor.FixedState(list), o)); err != nil {
		return hubError(err)
	}
	if proof != nil && *name != "" {
		if err := auditor.SubmitProof(ctx, c, *name, *proof); err != nil {
			fmt.Fprintf(stderr, "rshub: report the successful audit to the hub: %v\n", hubError(err))
		}
	}
	return printer.printSummary()
}

// readToken returns the token in file, or the one in RSHUB_TOKEN if file is empty.
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

// readList reads a list into a temporary directory. The caller must call cleanup to remove it.
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

// A differencePrinter prints and counts differences.
type differencePrinter struct {
	stdout, stderr io.Writer
	skipUnknown    bool

	latest audit.Summary // newest summary of the hub's inventory
	counts map[audit.Kind]int
}

// printDifferences prints differences, one per line.
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

// printSummary writes a summary to standard error. It returns errDifferences if there are any.
func (p *differencePrinter) printSummary() error {
	n := p.counts
	fmt.Fprintf(p.stderr, "rshub: %d missing, %d stale, %d extra, %d unknown; the hub has %d resources at %v\n",
		n[audit.Missing], n[audit.Stale], n[audit.Extra], n[audit.Unknown], p.latest.Count, p.latest.Cursor)
	if !p.latest.Complete {
		fmt.Fprintln(p.stderr, "rshub: the set is not declared complete, so the hub may lack resources")
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

// printRetry writes the reason for a retry to standard error.
func (p *differencePrinter) printRetry(err error, _ time.Duration) {
	fmt.Fprintf(p.stderr, "rshub: %v; retrying\n", hubError(err))
}
