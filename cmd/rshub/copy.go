package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rshub/rshub/callback"
	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/changelog/disklog"
	"github.com/rshub/rshub/changelog/redislog"
)

const copyUsage = `rshub copy --from MEMORY --to MEMORY copies a change memory with all that it
knows: a hub that starts on the copy goes on as if nothing had happened. Cursors,
positions, datetimes, documents and idempotency keys stay the same, and WebSub
subscriptions go on where they are.

  --from MEMORY          the memory to copy: a data directory, as in RSHUB_DATA, or
                         the URL of a Redis, as in RSHUB_REDIS_URL
  --to MEMORY            where the copy goes, likewise; it must be new, or hold an
                         unfinished copy of the same memory
  --from-prefix PREFIX   what the memory's keys in Redis begin with, default
  --to-prefix PREFIX     RSHUB_PREFIX or else rshub

It may be interrupted: run again, it goes on where it stopped. No hub starts on a
copy before it is finished.

Stop the hub before its data directory is copied (or copy what rshub backup made).
Hubs on a Redis may run, and then the copy holds of each set what was there when
its turn came: that is a backup. To move, stop them first.
`

// copyMemory copies a change memory into another store.
func copyMemory(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	c, p := new(config), &problems{unreadable: map[string]bool{}}
	c.read(p)
	if err := errors.Join(p.errs...); err != nil {
		return fmt.Errorf("configuration:\n%w", err)
	}
	flags := flag.NewFlagSet("rshub copy", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	from, to := place{config: c, flag: "--from", log: newLogger(stderr, slog.LevelWarn)}, place{config: c, flag: "--to", log: newLogger(stderr, slog.LevelWarn)}
	flags.StringVar(&from.name, "from", "", "")
	flags.StringVar(&from.prefix, "from-prefix", c.Prefix, "")
	flags.StringVar(&to.name, "to", "", "")
	flags.StringVar(&to.prefix, "to-prefix", c.Prefix, "")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		_, err = fmt.Fprint(stdout, copyUsage)
		return err
	case err != nil:
		return usageError(err.Error())
	case flags.NArg() > 0 || from.name == "" || to.name == "":
		return usageError("rshub copy --from MEMORY --to MEMORY: a memory is a data directory or the URL of a Redis")
	}
	if err := errors.Join(from.check(), to.check()); err != nil {
		return usageError(err.Error())
	}
	if from.same(to) {
		return usageError("--from and --to are the same memory")
	}
	source, err := from.open(ctx)
	if err != nil {
		return err
	}
	defer source.Close() // it has nothing new, but for a number that claims begin at
	target, err := to.openImport(ctx, source.ID())
	if errors.Is(err, changelog.ErrCopied) {
		return copied(ctx, source, to, stdout)
	}
	if err != nil {
		return err
	}
	begin := time.Now()
	// The subscriptions go first: so the copy reaches at least as far as they do.
	subscriptions, err := copySubscriptions(ctx, from, source, to, target)
	var done changelog.Progress
	if err == nil {
		done, err = runCopy(ctx, source, target, stderr)
	}
	err = errors.Join(err, target.Close())
	switch {
	case ctx.Err() != nil && err != nil:
		return fmt.Errorf("stopped; run the same command again and it goes on where it stopped")
	case err != nil:
		return fmt.Errorf("copy %s to %s: %w; run the same command again and it goes on where it stopped", from, to, err)
	}
	took := time.Since(begin)
	fmt.Fprintf(stdout, "%s holds the change memory now: %d sets, %d changes", to, done.Sets, done.Changes)
	if done.Before > 0 {
		fmt.Fprintf(stdout, ", %d of them from an earlier run", done.Before)
	}
	fmt.Fprintf(stdout, ", %d subscriptions; in %v, %.0f changes a second. Start from it with %s\n", subscriptions, took.Round(time.Millisecond),
		float64(done.Changes-done.Before)/math.Max(took.Seconds(), 1e-3), to.variables())
	return nil
}

// copySubscriptions copies the WebSub subscriptions, and what is asked for.
func copySubscriptions(ctx context.Context, from place, source any, to place, target any) (int, error) {
	old, err := from.registry(ctx, source)
	if err != nil {
		return 0, err
	}
	kept, err := to.registry(ctx, target)
	if err != nil {
		return 0, err
	}
	return callback.Copy(ctx, old, kept)
}

// registry opens the subscriptions beside a memory, or beside what becomes one.
func (p place) registry(ctx context.Context, memory any) (callback.Registry, error) {
	switch m := memory.(type) {
	case *redislog.Log:
		return callback.NewRedis(m.Client(), p.prefix, callback.RedisOptions{})
	case *redislog.Import:
		return callback.NewRedis(m.Client(), p.prefix, callback.RedisOptions{})
	case *disklog.Log:
		return callback.OpenDisk(ctx, m.Keep(callbackKeep))
	case *disklog.Import:
		return callback.OpenDisk(ctx, m.Keep(callbackKeep))
	}
	return nil, fmt.Errorf("a %T has no subscriptions", memory)
}

// runCopy copies and says each second how far it is.
func runCopy(ctx context.Context, source changelog.Exporter, target changelog.Importer, stderr io.Writer) (changelog.Progress, error) {
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
				last = max(last, p.Before) // what was there is not speed
				fmt.Fprintf(stderr, "%d of %d sets, %d of %d changes, %d a second\n",
					p.SetsDone, p.Sets, p.ChangesDone, p.Changes, p.ChangesDone-min(last, p.ChangesDone))
				last = p.ChangesDone
			}
		}
	})
	return changelog.Copy(ctx, source, target, func(p changelog.Progress) { now.Store(&p) })
}

// copied says what it means that a copy was finished before.
func copied(ctx context.Context, source changelog.Exporter, to place, stdout io.Writer) error {
	target, err := to.open(ctx)
	if err != nil {
		return err
	}
	defer target.Close() // it was only read
	ours, err := source.Sets(ctx)
	if err != nil {
		return err
	}
	theirs, err := target.Sets(ctx)
	if err != nil {
		return err
	}
	if !reflect.DeepEqual(ours, theirs) {
		return fmt.Errorf("%s holds a finished copy of this memory, and a hub has run on one of the two since: "+
			"they are not the same any more. Start from the one that is to go on. To copy once more, empty %s or choose another place", to, to)
	}
	fmt.Fprintf(stdout, "%s holds a finished copy of this memory already; there is nothing to do. Start from it with %s\n", to, to.variables())
	return nil
}

// A place is where a change memory is kept: a data directory, or a Redis.
type place struct {
	config *config
	log    *slog.Logger
	flag   string // that names it
	name   string // the directory or the URL
	prefix string // in Redis
}

func (p place) redis() bool { return strings.Contains(p.name, "://") }

// String names the place without a secret.
func (p place) String() string {
	if !p.redis() {
		return p.name
	}
	scheme, rest, _ := strings.Cut(p.name, "://")
	rest, _, _ = strings.Cut(rest, "?")
	return fmt.Sprintf("%s://%s (prefix %s)", scheme, rest[strings.LastIndexByte(rest, '@')+1:], p.prefix)
}

// variables are what a hub is started with.
func (p place) variables() string {
	switch {
	case !p.redis():
		return "RSHUB_DATA=" + p.name
	case p.prefix != "rshub":
		return "RSHUB_REDIS_URL and RSHUB_PREFIX=" + p.prefix
	}
	return "RSHUB_REDIS_URL"
}

// check returns nil when the place can be one. What looks like a server must not
// become a directory of that name.
func (p place) check() error {
	switch {
	case p.redis() && !prefixForm.MatchString(p.prefix):
		return fmt.Errorf("%s-prefix is %q; it is 1 to 40 of a-z, A-Z, 0-9, hyphen and underscore", p.flag, p.prefix)
	case !p.redis() && strings.Contains(p.name, ":") && !strings.ContainsAny(p.name, `/\`):
		return fmt.Errorf("%s %s is no URL such as redis://localhost:6379; a directory of that name is ./%s", p.flag, p.name, p.name)
	}
	return nil
}

func (p place) same(q place) bool {
	if p.redis() || q.redis() {
		return p.String() == q.String()
	}
	a, aerr := os.Stat(p.name)
	b, berr := os.Stat(q.name)
	return aerr == nil && berr == nil && os.SameFile(a, b)
}

// open opens the memory that is there.
func (p place) open(ctx context.Context) (changelog.Exporter, error) {
	if p.redis() {
		memory, err := redislog.Open(ctx, p.name, p.redisOptions())
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", p.flag, p, err)
		}
		return memory, nil
	}
	memory, err := disklog.Open(filepath.Join(p.name, storeDir), p.diskOptions())
	switch {
	case errors.Is(err, disklog.ErrInUse):
		return nil, fmt.Errorf("%s %s: stop the hub that runs on it first, or copy what rshub backup DIR makes of it: %w", p.flag, p, err)
	case err != nil:
		return nil, fmt.Errorf("%s %s: %w", p.flag, p, err)
	}
	return memory, nil
}

// openImport opens the place to become a copy of the memory with an identity.
func (p place) openImport(ctx context.Context, id string) (changelog.Importer, error) {
	if p.redis() {
		target, err := redislog.OpenImport(ctx, p.name, id, p.redisOptions())
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", p.flag, p, err)
		}
		return target, nil
	}
	err := os.MkdirAll(p.name, 0o700)
	if err == nil {
		err = syncDir(filepath.Dir(filepath.Clean(p.name)))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: make the data directory: %w", p.flag, err)
	}
	o := p.diskOptions()
	o.Existing = false
	target, err := disklog.OpenImport(filepath.Join(p.name, storeDir), id, o)
	switch {
	case errors.Is(err, disklog.ErrInUse):
		return nil, fmt.Errorf("%s %s: a hub, or another rshub copy, is at work there: %w", p.flag, p, err)
	case err != nil:
		return nil, fmt.Errorf("%s %s: %w", p.flag, p, err)
	}
	return target, nil
}

func (p place) diskOptions() disklog.Options {
	return disklog.Options{Existing: true, ClockSkew: p.config.ClockSkew, Reserve: max(uint64(p.config.DiskReserve), 1)}
}

func (p place) redisOptions() redislog.Options {
	return redislog.Options{Existing: true, Prefix: p.prefix, ClockSkew: p.config.ClockSkew, Logger: p.log,
		Timeout: p.config.RedisTimeout, Wait: p.config.RedisWait, WaitTimeout: p.config.RedisWaitTimeout, AllowEviction: p.config.RedisAllowEviction}
}
