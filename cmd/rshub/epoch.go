package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/changelog/disklog"
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
	memory := withoutSecret(args[0])
	if !inRedis(memory) && strings.Contains(memory, ":") && !strings.ContainsAny(memory, `/\`) {
		return usageError(fmt.Sprintf("%s is not a URL such as redis://localhost:6379; for a directory of that name, write ./%s", memory, memory))
	}
	sets, err := server.BeginEpochs(ctx, c.storeAt(args[0], stderr))
	switch {
	case errors.Is(err, disklog.ErrInUse):
		return fmt.Errorf("%s: stop the hub that runs on it first: %w", memory, err)
	case errors.Is(err, changelog.ErrCorrupt):
		return fmt.Errorf("begin a new epoch in %s: %d sets have one, but not all: %w", memory, sets, err)
	case err != nil:
		return fmt.Errorf("begin a new epoch in %s: %w; run the same command again", memory, err)
	}
	fmt.Fprintf(stdout, "%s has begun a new epoch: the open Change Lists of %s have new names\n", memory, progress.Count(sets, "set"))
	return nil
}
