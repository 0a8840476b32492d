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

const followUsage = `Usage: rshub follow [flags] -set SET

Print the changes of a set as they are published, one JSON object per line.

  -set SET         name of the set (required)
  -hub URL         URL of the hub (default http://127.0.0.1:8080)
  -since POSITION  start after a cursor, at a datetime, at start, or now (default now)
  -prefix URI      print only changes whose loc starts with URI
  -change KINDS    print only changes of these kinds, a comma-separated list of
                   created, updated and deleted
  -type TYPES      print only changes of resources with these media types, separated
                   by commas
  -collection URI  print only changes with a link rel=collection to URI, and deletions
  -count N         stop after N changes
  -for DURATION    stop after this time, such as 1m; fail if fewer than -count changes
                   were received

If the hub has tokens, set RSHUB_TOKEN to one with the right follow:SET. While the hub
is unreachable, the command retries, so no change is missed. When it stops, it prints
the -since value for resuming to standard error.

Examples:
  rshub follow -set articles
  rshub follow -hub https://hub.example.org -set articles -since start -count 10
`

// maxRequestChanges is the maximum number of changes per request of follow with -count.
const maxRequestChanges = 1_000

// runFollow prints the changes of a set until ctx is canceled.
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
		return usageError("rshub follow -set SET: invalid arguments; run 'rshub follow -h' for usage")
	}
	if err := feed.CheckSet(*set); err != nil {
		return usageError("rshub follow -set SET: " + err.Error())
	}
	filter, err := feed.ParseFilter(query)
	if err != nil {
		return err
	}
	printer := &changePrinter{stdout: stdout, stderr: stderr, count: *count, since: cmp.Or(query.Get("since"), "now")}
	c, err := client.New(*hub, client.Options{Token: os.Getenv("RSHUB_TOKEN"), UserAgent: "rshub/" + build.Version(), OnRetry: printer.printRetry})
	if err != nil {
		return usageError("-hub, RSHUB_TOKEN: want a URL such as https://hub.example.org, and a token: " + err.Error())
	}
	limited := ctx
	if *duration > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, *duration)
		defer cancel()
	}
	err = printer.printBatches(c.Follow(limited, *set, printer.since, client.FollowOptions{Filter: filter, Limit: min(*count, maxRequestChanges)}))
	if printer.since != "now" && printer.since != "start" {
		fmt.Fprintf(stderr, "rshub: to resume, use -since %s\n", printer.since)
	}
	switch {
	case ctx.Err() != nil: // stopped by the user, as is usual
		return nil
	case limited.Err() != nil && printer.printed < *count:
		return fmt.Errorf("received %s within %v, want %d", progress.Count(printer.printed, "change"), *duration, *count)
	case limited.Err() != nil:
		return nil
	}
	return err
}

// A changePrinter prints the changes of a set and tracks the cursor for resuming.
type changePrinter struct {
	stdout, stderr io.Writer
	count          int // number of changes to print; zero means all

	printed int
	since   string // value of -since for resuming; a cursor once a batch is printed
}

// printBatches prints changes, one per line, until batches ends or count changes are printed.
func (p *changePrinter) printBatches(batches iter.Seq2[*feed.Batch, error]) error {
	for b, err := range batches {
		if err != nil {
			return hubError(err)
		}
		if b.Diverged {
			fmt.Fprintln(p.stderr, "rshub: the change memory lost its newest changes; some changes may be repeated")
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

// printRetry writes the reason for a retry to standard error.
func (p *changePrinter) printRetry(err error, _ time.Duration) {
	fmt.Fprintf(p.stderr, "rshub: %v; retrying\n", hubError(err))
}

// hubError returns an error with status and detail of the hub's response. It returns err
// unchanged if err has no response of a hub.
func hubError(err error) error {
	p, ok := errors.AsType[*feed.Problem](err)
	if !ok {
		return err
	}
	return fmt.Errorf("hub returned %d: %s", p.Status, cmp.Or(p.Detail, p.Title))
}
