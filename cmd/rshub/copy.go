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

const copyUsage = `rshub copy --from DIR --to URL copies what a hub keeps from its data directory into a
Redis, so that several hubs can go on with it. Cursors, positions, datetimes, Change
Lists and idempotency keys stay the same, and WebSub subscriptions continue where they
are. Secrets that are encrypted stay encrypted. With RSHUB_SECRET_KEYS, the copy has all
of them encrypted with the first key.

  --from DIR   the data directory, as in RSHUB_DATA. Stop its hub first, or copy what
               rshub backup made of it
  --to URL     the Redis, as in RSHUB_REDIS_URL. RSHUB_PREFIX begins the keys there. It must
               hold no change memory, or an unfinished copy of this one

Inventories are not copied: the hubs make them from the log. If retention has removed a part
of the log of a set, publish all its resources once, and say again that it is complete.

You may interrupt the command. Run it again, and it begins anew. No hub can start on a copy
that is not finished.
`

// runCopy copies a change memory from the disk into Redis.
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
		return usageError(fmt.Sprintf("--from %s is not a directory; to copy a memory in Redis, use the tools of Redis", redisconn.WithoutSecret(*from)))
	case !isRedisURL(*to):
		return usageError("--to is not a URL such as redis://localhost:6379")
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
	line.Begin()
	store := c.store()
	store.Logger = newLogger(stderr, slog.LevelWarn)
	copied, err := server.Copy(ctx, store, func(copied server.Copied) {
		text := func(time.Time) string {
			return fmt.Sprintf("%s and %s are copied", progress.Count(copied.Sets, "set"), progress.Count(copied.Changes, "change"))
		}
		line.Update(text, text)
	})
	line.Clear()
	switch {
	case errors.Is(err, disklog.ErrInUse):
		return fmt.Errorf("--from %s: stop the hub that runs on it first, or copy what rshub backup DIR makes of it: %w", *from, err)
	case ctx.Err() != nil && err != nil:
		return errors.New("stopped; run the same command again: it begins anew")
	case err != nil:
		return fmt.Errorf("copy %s to %s: %w", *from, redisconn.WithoutSecret(*to), err)
	}
	variables := "RSHUB_REDIS_URL"
	if c.Prefix != "rshub" {
		variables += " and RSHUB_PREFIX=" + c.Prefix
	}
	fmt.Fprintf(stdout, "%s holds the change memory now: %s, %s, %s; in %v. Start from it with %s\n", redisconn.WithoutSecret(*to), progress.Count(copied.Sets, "set"),
		progress.Count(copied.Changes, "change"), progress.Count(copied.Subscriptions, "subscription"), time.Since(start).Round(time.Millisecond), variables)
	return nil
}

// isRedisURL reports whether a change memory is in a Redis, and not in a directory.
func isRedisURL(location string) bool { return strings.Contains(location, "://") }
