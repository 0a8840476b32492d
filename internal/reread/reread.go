// Package reread reads files and documents again and again, because others replace them while
// the process runs.
package reread

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/rshub/rshub/internal/backoff"
)

// Every is how often a file is read.
const Every = 2 * time.Second

// A Document is something that is read again and again. While it cannot be used, what it was
// before stays in force: the log says so once for each error, and Err returns it.
type Document struct {
	What string // it is, in the log: "the tokens file"
	Log  *slog.Logger
	// Read reads it, keeps what it says, and reports whether that is something else than before.
	Read func(context.Context) (changed bool, err error)
	// Pause is the time until it is read again, by the error of the last reading. Nil: Every.
	Pause func(error) time.Duration
	// Asked has it read at once. Nil: nobody asks.
	Asked <-chan struct{}

	mu  sync.Mutex
	err error
}

// Watch reads the document after each pause, until ctx is done. Only one goroutine calls it.
func (d *Document) Watch(ctx context.Context) {
	for {
		pause := Every
		if d.Pause != nil {
			pause = d.Pause(d.Err())
		}
		if backoff.SleepOrWake(ctx, pause, d.Asked) != nil {
			return
		}
		before := d.Err()
		changed, err := d.Look(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && (before == nil || before.Error() != err.Error()):
			d.Log.Error(d.What+" cannot be used: what was there before stays in force", "err", err)
		case changed:
			d.Log.Info(d.What + " changed, and the change is in force")
		case err == nil && before != nil:
			d.Log.Info(d.What + " can be used again, and did not change")
		}
	}
}

// Look reads the document once. It reports whether it changed.
func (d *Document) Look(ctx context.Context) (changed bool, err error) {
	changed, err = d.Read(ctx)
	d.mu.Lock()
	d.err = err
	d.mu.Unlock()
	return changed, err
}

// Err returns why the document, as it is now, is not in force. It is nil if it is.
func (d *Document) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}
