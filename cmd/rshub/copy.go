package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/changelog/disklog"
	"github.com/rshub/rshub/internal/progress"
	"github.com/rshub/rshub/server"
	"github.com/rshub/rshub/transfer"
)

const copyUsage = `rshub copy --from MEMORY --to MEMORY copies a whole change memory, from disk to Redis or
back. A hub that starts on the copy continues where the original was: cursors, positions,
datetimes, closed Change Lists, idempotency keys and inventories are the same, and WebSub
subscriptions continue. Only the open Change Lists get new names at that start, because
hubs may also go on with the original.

Encrypted secrets stay encrypted. With RSHUB_SECRET_KEYS, the copy has all secrets
encrypted with the first key.

  --from MEMORY          the memory to copy: a data directory, as in RSHUB_DATA, or
                         the URL of a Redis, as in RSHUB_REDIS_URL
  --to MEMORY            where to copy it to: a data directory or the URL of a Redis;
                         it must be new, or hold an unfinished copy of the same memory
  --from-prefix PREFIX   the beginning of the keys of --from, if that is in Redis
  --to-prefix PREFIX     the beginning of the keys of --to, if that is in Redis; the
                         default of both is RSHUB_PREFIX, or else rshub

You may interrupt the command. Run it again, and it continues where it stopped. No hub
starts on an unfinished copy.

To copy a data directory, stop its hub first, or copy a backup (rshub backup). To copy
from Redis, you need not stop the hubs. Each set is then copied as it is at that moment,
which is enough for a backup. If you move the hubs to the copy, stop them before you copy.
`

// copyMemory copies a change memory into another store.
func copyMemory(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	c, p := new(config), &problems{unreadable: map[string]bool{}}
	c.read(p)
	c.readSecretKeys(p)
	if err := errors.Join(p.errs...); err != nil {
		return fmt.Errorf("configuration:\n%w", err)
	}
	flags := flag.NewFlagSet("rshub copy", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	from, to := location{config: c, flag: "--from", log: newLogger(stderr, slog.LevelWarn)}, location{config: c, flag: "--to", log: newLogger(stderr, slog.LevelWarn)}
	flags.StringVar(&from.Name, "from", "", "")
	flags.StringVar(&from.Prefix, "from-prefix", c.Prefix, "")
	flags.StringVar(&to.Name, "to", "", "")
	flags.StringVar(&to.Prefix, "to-prefix", c.Prefix, "")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		_, err = fmt.Fprint(stdout, copyUsage)
		return err
	case err != nil:
		return usageError(err.Error())
	case flags.NArg() > 0 || from.Name == "" || to.Name == "":
		return usageError("rshub copy --from MEMORY --to MEMORY: a memory is a data directory or the URL of a Redis")
	}
	if err := errors.Join(from.check(), to.check()); err != nil {
		return usageError(err.Error())
	}
	if from.Same(to.Location) {
		return usageError("--from and --to are the same memory")
	}
	source, err := from.open(ctx)
	if err != nil {
		return err
	}
	defer source.Close() // the error does not matter: the copy is complete without it
	target, err := to.openTarget(ctx, source.ID())
	if errors.Is(err, changelog.ErrCopied) {
		return copied(ctx, source, to, stdout)
	}
	if err != nil {
		return err
	}
	begin := time.Now()
	done, err := runCopy(ctx, source, target, from.log, stderr)
	err = errors.Join(err, target.Close())
	switch {
	case ctx.Err() != nil && err != nil:
		return fmt.Errorf("stopped; run the same command again to continue")
	case err != nil:
		return fmt.Errorf("copy %s to %s: %w; run the same command again to continue", from, to, err)
	}
	took := time.Since(begin)
	fmt.Fprintf(stdout, "%s holds the change memory now: %s, %s", to, progress.Count(done.Sets, "set"), progress.Count(done.Changes, "change"))
	if done.Before > 0 {
		fmt.Fprintf(stdout, ", %d of them from an earlier run", done.Before)
	}
	if done.Inventories > 0 {
		fmt.Fprintf(stdout, ", %s of %s", progress.Count(done.Inventories, "inventory"), progress.Count(done.Resources, "resource"))
	}
	fmt.Fprintf(stdout, ", %s; in %v, %.0f changes a second. Start from it with %s\n", progress.Count(done.Subscriptions, "subscription"), took.Round(time.Millisecond),
		float64(done.Changes-done.Before)/math.Max(took.Seconds(), 1e-3), to.variables())
	return nil
}

// runCopy copies the memory, and writes to stderr each second how far it is.
func runCopy(ctx context.Context, source *transfer.Source, target *transfer.Target, log *slog.Logger, stderr io.Writer) (transfer.Copied, error) {
	var now atomic.Pointer[changelog.Progress]
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	end := make(chan struct{})
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(end)
	wg.Go(func() {
		last := uint64(0)
		for {
			select {
			case <-end:
				return
			case <-tick.C:
			}
			if p := now.Load(); p != nil {
				last = max(last, p.Before) // what an earlier run copied does not count as speed
				fmt.Fprintf(stderr, "%d of %d sets, %d of %d changes, %d a second\n",
					p.SetsDone, p.Sets, p.ChangesDone, p.Changes, p.ChangesDone-min(last, p.ChangesDone))
				last = p.ChangesDone
			}
		}
	})
	return transfer.Copy(ctx, source, target, log, func(p changelog.Progress) { now.Store(&p) })
}

// copied tells the user that an earlier run has finished the copy. It fails if the copy
// and the source are not the same any more.
func copied(ctx context.Context, source *transfer.Source, to location, stdout io.Writer) error {
	target, err := to.open(ctx)
	if err != nil {
		return err
	}
	defer target.Close() // the error does not matter: it was only read
	alike, err := transfer.Alike(ctx, source, target)
	switch {
	case err != nil:
		return err
	case !alike:
		return fmt.Errorf("%s holds a finished copy of this memory, and a hub has run on one of the two since: "+
			"they differ now. Start from the one that you want to keep. To copy again, empty %s or choose another place", to, to)
	}
	fmt.Fprintf(stdout, "%s holds a finished copy of this memory already; there is nothing to do. Start from it with %s\n", to, to.variables())
	return nil
}

// A location is a server.Location that a flag names.
type location struct {
	server.Location
	config *config
	log    *slog.Logger
	flag   string
}

// variables returns the variables that a hub needs to start on the location.
func (l location) variables() string {
	switch {
	case !l.InRedis():
		return "RSHUB_DATA=" + l.Name
	case l.Prefix != "rshub":
		return "RSHUB_REDIS_URL and RSHUB_PREFIX=" + l.Prefix
	}
	return "RSHUB_REDIS_URL"
}

// check returns nil when the location can be one of a memory. It refuses a name such as
// localhost:6379, which was probably meant as a server: else rshub would make a
// directory of that name.
func (l location) check() error {
	switch {
	case l.InRedis() && !prefixForm.MatchString(l.Prefix):
		return fmt.Errorf("%s-prefix is %q; it is 1 to 40 of a-z, A-Z, 0-9, hyphen and underscore", l.flag, l.Prefix)
	case !l.InRedis() && strings.Contains(l.Name, ":") && !strings.ContainsAny(l.Name, `/\`):
		return fmt.Errorf("%s %s is not a URL such as redis://localhost:6379; if it is a directory, write ./%s", l.flag, l.Name, l.Name)
	}
	return nil
}

// store returns the configuration that opens the location.
func (l location) store() server.Config {
	c := l.Of(l.config.store())
	c.Logger = l.log
	return c
}

// open opens the memory that is there.
func (l location) open(ctx context.Context) (*transfer.Source, error) {
	source, err := server.OpenSource(ctx, l.store())
	switch {
	case errors.Is(err, disklog.ErrInUse):
		return nil, fmt.Errorf("%s %s: stop the hub that runs on it first (to copy it, you can also copy what rshub backup DIR makes of it): %w", l.flag, l, err)
	case err != nil:
		return nil, fmt.Errorf("%s %s: %w", l.flag, l, err)
	}
	return source, nil
}

// openTarget opens the location to become a copy of the memory with an identity.
func (l location) openTarget(ctx context.Context, id string) (*transfer.Target, error) {
	target, err := server.OpenTarget(ctx, l.store(), id)
	switch {
	case errors.Is(err, disklog.ErrInUse):
		return nil, fmt.Errorf("%s %s: a hub or another rshub copy uses it: %w", l.flag, l, err)
	case err != nil:
		return nil, fmt.Errorf("%s %s: %w", l.flag, l, err)
	}
	return target, nil
}
