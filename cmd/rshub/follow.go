package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"maps"
	"net/url"
	"os"
	"slices"
	"time"

	"github.com/rshub/rshub/client"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/build"
	"github.com/rshub/rshub/internal/progress"
	"github.com/rshub/rshub/resourcesync"
)

const followUsage = `Usage: rshub follow [flags] -set SET [-set SET]...
       rshub follow [flags] -all

Print the changes of sets as they are published, one JSON object per line. If more than
one set is followed, all use one connection, and each object starts with its "set".

  -set SET         name of a set; may be repeated
  -all             follow all sets that you may follow, and sets that are created later
  -hub URL         URL of the hub (default http://127.0.0.1:8080)
  -since POSITION  start at a datetime, at start, or now (default now); for one set also
                   after a cursor
  -cursors FILE    resume each set after its cursor in FILE, and save its cursor there
                   after printing; -since is for sets without a cursor. With -all, sets
                   that are new since the last run start at start
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
is unreachable, the command retries, so no change is missed. When it stops without
-cursors, it prints how to resume to standard error. An error of one of several sets is
printed there, too, and the others are still followed. FILE has a line for each set: its
name, a space and its cursor.

Examples:
  rshub follow -set articles
  rshub follow -hub https://hub.example.org -set articles -since start -count 10
  rshub follow -hub https://hub.example.org -all -since start -cursors all.cursors
`

// maxRequestChanges is the maximum number of changes per request of follow with -count.
const maxRequestChanges = 1_000

// runFollow prints the changes of sets until ctx is canceled.
func runFollow(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("rshub follow", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	var sets []string
	flags.Func("set", "", func(v string) error { sets = append(sets, v); return nil })
	all := flags.Bool("all", false, "")
	hub := flags.String("hub", "http://127.0.0.1:8080", "")
	cursors := flags.String("cursors", "", "")
	count := flags.Int("count", 0, "")
	duration := flags.Duration("for", 0, "")
	query := url.Values{}
	for _, name := range []string{"since", "prefix", "change", "type", "collection"} {
		flags.Func(name, "", func(v string) error { query.Set(name, v); return nil })
	}
	err := flags.Parse(args)
	since := cmp.Or(query.Get("since"), "now")
	switch {
	case errors.Is(err, flag.ErrHelp):
		_, err = fmt.Fprint(stdout, followUsage)
		return err
	case err != nil:
		return usageError(err.Error())
	case flags.NArg() > 0 || *count < 0 || *duration < 0:
		return usageError("rshub follow -set SET: invalid arguments; run 'rshub follow -h' for usage")
	case *all == (len(sets) > 0):
		return usageError("rshub follow -set SET: want sets or -all; run 'rshub follow -h' for usage")
	}
	for _, set := range sets {
		if err := feed.CheckSet(set); err != nil {
			return usageError("rshub follow -set SET: " + err.Error())
		}
	}
	many := *all || len(sets) > 1
	if _, err := feed.ParseCursor(since); many && err == nil && !isDatetime(since) {
		return usageError("-since " + since + ": a cursor belongs to one set; use -cursors to resume several sets")
	}
	filter, err := feed.ParseFilter(query)
	if err != nil {
		return err
	}
	printer := &changePrinter{stdout: stdout, stderr: stderr, count: *count, many: many, since: since, cursors: map[string]feed.Cursor{}}
	c, err := client.New(*hub, client.Options{Token: os.Getenv("RSHUB_TOKEN"), UserAgent: "rshub/" + build.Version(), OnRetry: printer.printRetry})
	if err != nil {
		return usageError("-hub, RSHUB_TOKEN: want a URL such as https://hub.example.org, and a token: " + err.Error())
	}
	if *cursors != "" {
		if printer.file, err = client.OpenCursorFile(*cursors); err != nil {
			return err
		}
	}
	limited := ctx
	if *duration > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, *duration)
		defer cancel()
	}
	err = printer.printBatches(followSets(limited, c, printer.file, sets, since, filter, *count))
	if err := printer.finish(); err != nil {
		return err
	}
	switch {
	case ctx.Err() != nil: // stopped by the user, as is usual
		return nil
	case limited.Err() != nil && printer.printed < *count:
		return fmt.Errorf("received %s within %v, want %d", progress.Count(printer.printed, "change"), *duration, *count)
	case limited.Err() != nil:
		return nil
	case err == nil && many && (*count == 0 || printer.printed < *count):
		return errors.New("no set is left to follow")
	}
	return err
}

// isDatetime reports whether a value of -since is a datetime, as a month is: 2026-01.
func isDatetime(since string) bool {
	_, err := resourcesync.ParseTime(since)
	return err == nil
}

// followSets yields the changes of sets: of a single one by long polls, of several or of all, if sets
// is empty, over one connection. file may be nil.
func followSets(ctx context.Context, c *client.Client, file *client.CursorFile, sets []string, since string, filter feed.Filter, count int) iter.Seq2[*feed.Batch, error] {
	if len(sets) == 1 {
		if file != nil {
			cursors, _ := file.Load(ctx) // never fails
			if at, ok := cursors[sets[0]]; ok {
				since = at.String()
			}
		}
		return c.Follow(ctx, sets[0], since, client.FollowOptions{Filter: filter, Limit: min(count, maxRequestChanges)})
	}
	o := client.FollowAllOptions{All: len(sets) == 0, AllSince: since, AllFilter: filter}
	for _, set := range sets {
		o.Sets = append(o.Sets, client.FollowSet{Set: set, Since: since, Filter: filter})
	}
	if file != nil { // a nil *CursorFile would be a CursorStore
		o.Cursors = file
	}
	return c.FollowAll(ctx, o)
}

// A changePrinter prints the changes of sets and tracks the cursors for resuming.
type changePrinter struct {
	stdout, stderr io.Writer
	count          int                // number of changes to print; zero means all
	many           bool               // whether each line names its set
	file           *client.CursorFile // nil without -cursors

	printed int
	since   string                 // for a single set, value of -since for resuming; a cursor once a batch is printed
	cursors map[string]feed.Cursor // cursor of each set after the last printed change
}

// printBatches prints changes, one per line, until batches ends or count changes are printed. Errors
// of single sets do not end it.
func (p *changePrinter) printBatches(batches iter.Seq2[*feed.Batch, error]) error {
	for b, err := range batches {
		if set, ok := errors.AsType[*client.SetError](err); ok {
			fmt.Fprintf(p.stderr, "rshub: %v\n", hubError(set))
			continue
		}
		if err != nil {
			return hubError(err)
		}
		if b.Diverged {
			where := ""
			if p.many {
				where = "set " + b.Set + ": "
			}
			fmt.Fprintf(p.stderr, "rshub: %sthe change memory lost its newest changes; some changes may be repeated\n", where)
		}
		entries, end := b.Entries, b.Cursor
		if remaining := p.count - p.printed; p.count > 0 && remaining < len(entries) {
			entries, end = entries[:remaining], entries[remaining-1].Cursor
		}
		if _, err := p.stdout.Write(p.lines(b.Set, entries)); err != nil {
			return err
		}
		p.printed += len(entries)
		if err := p.moveTo(b.Set, end, len(entries) > 0); err != nil {
			return err
		}
		if p.count > 0 && p.printed == p.count {
			return nil
		}
	}
	return nil
}

// lines returns the lines of entries.
func (p *changePrinter) lines(set string, entries []feed.Entry) []byte {
	lines := feed.NDJSON.Append(nil, &feed.Batch{Entries: entries}, "")
	if !p.many {
		return lines
	}
	named := make([]byte, 0, len(lines)+len(entries)*(len(set)+10))
	for line := range bytes.Lines(lines) {
		named = append(named, `{"set":"`+set+`",`...) // names need no escapes
		named = append(named, line[1:]...)
	}
	return named
}

// moveTo notes that the changes of a set up to a cursor were printed, and saves the cursor. If standard
// output is a file, its new lines are durable before.
func (p *changePrinter) moveTo(set string, at feed.Cursor, printed bool) error {
	p.since, p.cursors[set] = at.String(), at
	if p.file == nil {
		return nil
	}
	if out, ok := p.stdout.(*os.File); ok && printed {
		if info, err := out.Stat(); err == nil && info.Mode().IsRegular() {
			if err := out.Sync(); err != nil {
				return err
			}
		}
	}
	return p.file.Save(context.Background(), set, at)
}

// maxResume is the maximum number of sets for which finish prints the cursors.
const maxResume = 20

// finish closes the file of cursors, or prints how to resume without one.
func (p *changePrinter) finish() error {
	switch {
	case p.file != nil:
		return p.file.Close()
	case !p.many && p.since != "now" && p.since != "start":
		fmt.Fprintf(p.stderr, "rshub: to resume, use -since %s\n", p.since)
	case !p.many, len(p.cursors) == 0:
	case len(p.cursors) > maxResume:
		fmt.Fprintf(p.stderr, "rshub: followed %d sets; to resume later, use -cursors FILE from the start\n", len(p.cursors))
	default:
		fmt.Fprintln(p.stderr, "rshub: to resume, use -cursors FILE with these lines in FILE:")
		for _, set := range slices.Sorted(maps.Keys(p.cursors)) {
			fmt.Fprintln(p.stderr, set, p.cursors[set])
		}
	}
	return nil
}

// printRetry writes the reason for a retry to standard error.
func (p *changePrinter) printRetry(err error, _ time.Duration) {
	fmt.Fprintf(p.stderr, "rshub: %v; retrying\n", hubError(err))
}

// hubError returns an error with status and detail of the hub's response, and the set if err concerns
// one of several. It returns err unchanged if err has no response of a hub.
func hubError(err error) error {
	p, ok := errors.AsType[*feed.Problem](err)
	if !ok {
		return err
	}
	if s, ok := errors.AsType[*client.SetError](err); ok {
		return fmt.Errorf("set %s: hub returned %d: %s", s.Set, p.Status, cmp.Or(p.Detail, p.Title))
	}
	return fmt.Errorf("hub returned %d: %s", p.Status, cmp.Or(p.Detail, p.Title))
}
