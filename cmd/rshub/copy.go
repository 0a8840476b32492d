package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/rshub/rshub/changelog/disklog"
	"github.com/rshub/rshub/internal/progress"
	"github.com/rshub/rshub/internal/redisconn"
	"github.com/rshub/rshub/internal/server"
)

const copyUsage = `Usage: rshub copy --from DIR --to URL

Copy a data directory to Redis, so that several hubs can take over. Cursors, positions,
datetimes, Change Lists and idempotency keys stay the same, and WebSub subscriptions
resume at their cursors. Secrets that are encrypted stay encrypted; if RSHUB_SECRET_KEYS
is set, the copy has all of them encrypted with the first key.

  --from DIR   data directory, as in RSHUB_DATA; stop its hub first, or name a directory
               that was created by rshub backup
  --to URL     Redis, as in RSHUB_REDIS_URL, with keys that start with RSHUB_PREFIX; it
               must have no change memory other than an unfinished copy of DIR

Inventories are not copied: hubs rebuild them from the log. If retention has removed a
part of a set's log, publish all resources of the set once, and declare it complete again.

An interrupted copy starts over when the command is run again. No hub can start on an
unfinished copy.

Example:
  rshub copy --from ./rshub-data --to redis://localhost:6379
`

// runCopy copies a change memory from disk to Redis.
func runCopy(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("rshub copy", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	from, to := flags.String("from", "", ""), flags.String("to", "", "")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		_, err = fmt.Fprint(stdout, copyUsage)
		return err
	case err != nil:
		return usageError(err.Error())
	case flags.NArg() > 0 || *from == "" || *to == "":
		return usageError("rshub copy --from DIR --to URL")
	case isRedisURL(*from):
		return usageError(fmt.Sprintf("--from: %s is not a directory; to copy a change memory in Redis, use the tools of Redis", redisconn.WithoutSecret(*from)))
	case !isRedisURL(*to):
		return usageError("--to: want a URL such as redis://localhost:6379")
	}
	c, p := new(config), &configErrors{unparsed: map[string]bool{}}
	c.read(p)
	c.Data, c.RedisURL = *from, *to
	c.checkStore(p)
	if err := errors.Join(p.errs...); err != nil {
		return fmt.Errorf("configuration:\n%w", err)
	}
	start := time.Now()
	line := progress.Line{W: stderr, Terminal: progress.IsTerminal(stderr), Now: time.Now}
	line.Start()
	store := c.store()
	store.Logger = newLogger(stderr, slog.LevelWarn)
	copied, err := server.Copy(ctx, store, func(copied server.CopyProgress) {
		text := func(time.Time) string {
			return fmt.Sprintf("copied %s and %s", progress.Count(copied.Sets, "set"), progress.Count(copied.Changes, "change"))
		}
		line.Update(text, text)
	})
	line.Clear()
	switch {
	case errors.Is(err, disklog.ErrInUse):
		return fmt.Errorf("--from %s: %w; stop the hub that uses it, or copy a directory created by rshub backup", *from, err)
	case ctx.Err() != nil && err != nil:
		return errors.New("interrupted; run the same command again to start over")
	case err != nil:
		return fmt.Errorf("copy %s to %s: %w", *from, redisconn.WithoutSecret(*to), err)
	}
	variables := "RSHUB_REDIS_URL"
	if c.Prefix != "rshub" {
		variables += " and RSHUB_PREFIX=" + c.Prefix
	}
	fmt.Fprintf(stdout, "%s: copied %s, %s, %s in %v; start hubs from it with %s\n", redisconn.WithoutSecret(*to), progress.Count(copied.Sets, "set"),
		progress.Count(copied.Changes, "change"), progress.Count(copied.Subscriptions, "subscription"), time.Since(start).Round(time.Millisecond), variables)
	return nil
}

// isRedisURL reports whether the location of a change memory is a URL rather than a directory.
func isRedisURL(location string) bool { return strings.Contains(location, "://") }
