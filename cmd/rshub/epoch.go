package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/internal/progress"
	"github.com/rshub/rshub/server"
)

// beginEpochs begins a new epoch of every set of a change memory.
func beginEpochs(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	c, p := new(config), &problems{unreadable: map[string]bool{}}
	c.read(p)
	if err := errors.Join(p.errs...); err != nil {
		return fmt.Errorf("configuration:\n%w", err)
	}
	if len(args) != 1 || args[0] == "" || strings.HasPrefix(args[0], "-") {
		return usageError("rshub epoch MEMORY: a memory is a data directory or the URL of a Redis")
	}
	l := location{Location: server.Location{Name: args[0], Prefix: c.Prefix}, config: c, flag: "MEMORY", log: newLogger(stderr, slog.LevelWarn)}
	if err := l.check(); err != nil {
		return usageError(err.Error())
	}
	memory, err := l.open(ctx)
	if err != nil {
		return err
	}
	sets, err := changelog.BeginEpochs(ctx, memory)
	damaged := errors.Is(err, changelog.ErrCorrupt)
	if err = errors.Join(err, memory.Close()); damaged {
		return fmt.Errorf("begin a new epoch in %s: %d sets have one, but not all: %w", l, sets, err)
	}
	if err != nil {
		return fmt.Errorf("begin a new epoch in %s: %w; run the same command again", l, err)
	}
	fmt.Fprintf(stdout, "%s has begun a new epoch: the open Change Lists of %s have new names\n", l, progress.Count(sets, "set"))
	return nil
}
