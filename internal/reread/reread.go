// Package reread polls files and documents, because they may be replaced while the process is
// running.
//
// If a new version is invalid, the last valid one remains in effect. It is used for the tokens
// file, the keys of an identity provider, and certificates.
package reread

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/rshub/rshub/internal/backoff"
)

// DefaultPause is the default time between two readings.
const DefaultPause = 2 * time.Second

// A Document is read periodically. While it is invalid, its last valid content remains in effect;
// each error is logged once, and Err returns it.
type Document struct {
	What string // name of the document in the log, such as "the tokens file"
	Log  *slog.Logger
	// Read reads the document, stores its content, and reports whether the content changed.
	Read func(context.Context) (changed bool, err error)
	// Pause returns the time until the next reading, given the error of the last one. If nil, it is
	// DefaultPause.
	Pause func(error) time.Duration
	// Requested.Wake makes Watch read the document immediately. It may be nil.
	Requested backoff.Wakeup

	mu  sync.Mutex
	err error
}

// Watch reads the document after each pause, until ctx is done. It must not be called concurrently.
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
			d.Log.Error(d.What+" is invalid; the previous content remains in effect", "err", err)
		case changed:
			d.Log.Info(d.What + " changed; the new content is in effect")
		case err == nil && before != nil:
			d.Log.Info(d.What + " is valid again and unchanged")
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

// Err returns why the current document is not in effect, or nil if it is.
func (d *Document) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}
