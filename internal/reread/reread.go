// Package reread reads files and documents regularly, because they may be replaced while the
// process runs.
//
// A version that is not valid leaves the last good one in force. It reads the tokens file, the keys
// of an identity provider, and certificates.
package reread

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/rshub/rshub/internal/backoff"
)

// DefaultPause is how often a file is read.
const DefaultPause = 2 * time.Second

// A Document is read again and again. While it cannot be used, its last good content
// stays in force; the log says so once for each error, and Err returns the error.
type Document struct {
	What string // the name of the document in the log: "the tokens file"
	Log  *slog.Logger
	// Read reads the document, keeps its content, and reports whether the content
	// changed.
	Read func(context.Context) (changed bool, err error)
	// Pause returns the time until the next reading. It gets the error of the last one.
	// Nil: Every.
	Pause func(error) time.Duration
	// Requested.Wake makes Watch read the document at once. Nil: never.
	Requested backoff.Wakeup

	mu  sync.Mutex
	err error
}

// Watch reads the document after each pause, until ctx is done. Only one goroutine may
// call it.
func (d *Document) Watch(ctx context.Context) {
	for {
		pause := DefaultPause
		if d.Pause != nil {
			pause = d.Pause(d.Err())
		}
		if backoff.SleepOrWake(ctx, pause, d.Requested) != nil {
			return
		}
		before := d.Err()
		changed, err := d.Load(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && (before == nil || before.Error() != err.Error()):
			d.Log.Error(d.What+" cannot be used: what was read before stays in force", "err", err)
		case changed:
			d.Log.Info(d.What + " changed, and the change is in force")
		case err == nil && before != nil:
			d.Log.Info(d.What + " can be used again, and did not change")
		}
	}
}

// Load reads the document once. It reports whether it changed.
func (d *Document) Load(ctx context.Context) (changed bool, err error) {
	changed, err = d.Read(ctx)
	d.mu.Lock()
	d.err = err
	d.mu.Unlock()
	return changed, err
}

// Err returns why the present document is not in force. It returns nil if it is
// in force.
func (d *Document) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}
