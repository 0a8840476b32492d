package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"net/url"
	"os"
	"time"

	"github.com/rshub/rshub/client"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/build"
	"github.com/rshub/rshub/internal/progress"
)

const followUsage = `rshub follow -set SET prints the changes of a set as they come, as JSON, one
change on each line.

  -set SET        the set
  -hub URL        the hub, default http://127.0.0.1:8080
  -since PLACE    where to begin: a cursor, a datetime, start, or now (the default)
  -prefix URI     print only changes whose loc begins with URI
  -change KINDS   print only changes of these kinds: created, updated, deleted,
                  separated by commas
  -type TYPES     print only changes of resources with these media types, separated by
                  commas
  -collection URI print only changes with a link rel=collection to URI, and deletions
  -count N        end after N changes
  -for DURATION   end after this time, such as 1m; if fewer than -count changes came
                  by then, the command fails

If the hub has tokens, set RSHUB_TOKEN to one with the right follow:SET. If the hub
cannot be reached, the command asks again until it answers, so no change is missed.
At its end the command prints, on standard error, the -since to go on with.
`

// maxRequestChanges is the most changes of one request of follow with -count.
const maxRequestChanges = 1_000

// runFollow prints the changes of a set until ctx ends.
func runFollow(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("rshub follow", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	set := flags.String("set", "", "")
	hub := flags.String("hub", "http://127.0.0.1:8080", "")
	count := flags.Int("count", 0, "")
	duration := flags.Duration("for", 0, "")
	query := url.Values{}
	for _, name := range []string{"since", "prefix", "change", "type", "collection"} {
		flags.Func(name, "", func(v string) error { query.Set(name, v); return nil })
	}
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		_, err = fmt.Fprint(stdout, followUsage)
		return err
	case err != nil:
		return usageError(err.Error())
	case flags.NArg() > 0 || *count < 0 || *duration < 0:
		return usageError("rshub follow -set SET: rshub follow -h explains it")
	}
	if err := feed.CheckSet(*set); err != nil {
		return usageError("rshub follow -set SET: " + err.Error())
	}
	filter, err := feed.ParseFilter(query)
	if err != nil {
		return err
	}
	printer := &changePrinter{stdout: stdout, stderr: stderr, count: *count, since: cmp.Or(query.Get("since"), "now")}
	c, err := client.New(*hub, client.Options{Token: os.Getenv("RSHUB_TOKEN"), UserAgent: "rshub/" + build.Version(), Note: printer.printRetry})
	if err != nil {
		return usageError("-hub is a URL such as https://hub.example.org, and RSHUB_TOKEN a token: " + err.Error())
	}
	limited := ctx
	if *duration > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, *duration)
		defer cancel()
	}
	err = printer.printBatches(c.Follow(limited, *set, printer.since, client.FollowOptions{Filter: filter, Limit: min(*count, maxRequestChanges)}))
	if printer.since != "now" && printer.since != "start" {
		fmt.Fprintf(stderr, "rshub: go on with -since %s\n", printer.since)
	}
	switch {
	case ctx.Err() != nil: // the user stopped it: the usual end
		return nil
	case limited.Err() != nil && printer.printed < *count:
		return fmt.Errorf("%s came within %v, and not %d", progress.Count(printer.printed, "change"), *duration, *count)
	case limited.Err() != nil:
		return nil
	}
	return err
}

// A changePrinter prints the changes of a set.
type changePrinter struct {
	stdout, stderr io.Writer
	count          int // how many changes to print; 0 for all

	printed int
	since   string // where to go on; a cursor after the first batch was printed
}

// printBatches prints changes, one on each line, until the batches end or count changes are
// printed.
func (p *changePrinter) printBatches(batches iter.Seq2[*feed.Batch, error]) error {
	for b, err := range batches {
		if err != nil {
			return hubError(err)
		}
		if b.Diverged {
			fmt.Fprintln(p.stderr, "rshub: the memory has lost its newest changes; some may come again")
		}
		entries, end := b.Entries, b.Cursor
		if remaining := p.count - p.printed; p.count > 0 && remaining < len(entries) {
			entries, end = entries[:remaining], entries[remaining-1].Cursor
		}
		lines := feed.NDJSON.Append(nil, &feed.Batch{Entries: entries}, "")
		if _, err := p.stdout.Write(lines); err != nil {
			return err
		}
		p.printed += len(entries)
		p.since = end.String()
		if p.count > 0 && p.printed == p.count {
			return nil
		}
	}
	return nil
}

// printRetry writes to standard error why the client tries again.
func (p *changePrinter) printRetry(err error, _ time.Duration) {
	fmt.Fprintf(p.stderr, "rshub: %v; asking again\n", hubError(err))
}

// hubError returns an error with the text of the hub's answer. If err is not an answer
// of a hub, hubError returns err.
func hubError(err error) error {
	p, ok := errors.AsType[*feed.Problem](err)
	if !ok {
		return err
	}
	return fmt.Errorf("the hub answered %d: %s", p.Status, cmp.Or(p.Detail, p.Title))
}
