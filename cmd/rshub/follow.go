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

// followLimit is the most changes of one request of follow with -count.
const followLimit = 1_000

// follow prints the changes of a set until ctx ends.
func follow(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("rshub follow", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	set := flags.String("set", "", "")
	hub := flags.String("hub", "http://127.0.0.1:8080", "")
	count := flags.Int("count", 0, "")
	limit := flags.Duration("for", 0, "")
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
	case flags.NArg() > 0 || *count < 0 || *limit < 0:
		return usageError("rshub follow -set SET: rshub follow -h explains it")
	}
	if err := feed.CheckSet(*set); err != nil {
		return usageError("rshub follow -set SET: " + err.Error())
	}
	filter, err := feed.ParseFilter(query)
	if err != nil {
		return err
	}
	f := &follower{stdout: stdout, stderr: stderr, count: *count, since: cmp.Or(query.Get("since"), "now")}
	c, err := client.New(*hub, client.Options{Token: os.Getenv("RSHUB_TOKEN"), UserAgent: "rshub/" + build.Version(), Note: f.note})
	if err != nil {
		return usageError("-hub is a URL such as https://hub.example.org, and RSHUB_TOKEN a token: " + err.Error())
	}
	within := ctx
	if *limit > 0 {
		var cancel context.CancelFunc
		within, cancel = context.WithTimeout(ctx, *limit)
		defer cancel()
	}
	err = f.print(c.Follow(within, *set, f.since, client.FollowOptions{Filter: filter, Limit: min(*count, followLimit)}))
	if f.since != "now" && f.since != "start" {
		fmt.Fprintf(stderr, "rshub: go on with -since %s\n", f.since)
	}
	switch {
	case ctx.Err() != nil: // the user stopped it: the usual end
		return nil
	case within.Err() != nil && f.printed < *count:
		return fmt.Errorf("%s came within %v, and not %d", progress.Count(f.printed, "change"), *limit, *count)
	case within.Err() != nil:
		return nil
	}
	return err
}

// A follower prints the changes of a set.
type follower struct {
	stdout, stderr io.Writer
	count          int // how many changes to print; 0 for all

	printed int
	since   string // where to go on; a cursor after the first batch was printed
}

// print prints changes, one on each line, until the batches end or count changes are
// printed.
func (f *follower) print(batches iter.Seq2[*feed.Batch, error]) error {
	for b, err := range batches {
		if err != nil {
			return said(err)
		}
		if b.Diverged {
			fmt.Fprintln(f.stderr, "rshub: the memory has lost its newest changes; some may come again")
		}
		entries, end := b.Entries, b.Cursor
		if left := f.count - f.printed; f.count > 0 && left < len(entries) {
			entries, end = entries[:left], entries[left-1].Cursor
		}
		lines := feed.NDJSON.Append(nil, &feed.Batch{Entries: entries}, "")
		if _, err := f.stdout.Write(lines); err != nil {
			return err
		}
		f.printed += len(entries)
		f.since = end.String()
		if f.count > 0 && f.printed == f.count {
			return nil
		}
	}
	return nil
}

// note writes to standard error why the client tries again.
func (f *follower) note(err error, _ time.Duration) {
	fmt.Fprintf(f.stderr, "rshub: %v; asking again\n", said(err))
}

// said returns an error with the text of the hub's answer. If err is not an answer
// of a hub, said returns err.
func said(err error) error {
	p, ok := errors.AsType[*feed.Problem](err)
	if !ok {
		return err
	}
	return fmt.Errorf("the hub answered %d: %s", p.Status, cmp.Or(p.Detail, p.Title))
}
