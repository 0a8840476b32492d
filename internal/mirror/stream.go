package mirror

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/backoff"
	"github.com/rshub/rshub/resourcesync"
)

// encodeLines returns entries as NDJSON.
func encodeLines(entries []feed.Entry) (text []byte) {
	for i := range entries {
		text = appendLine(text, &entries[i])
	}
	return text
}

// appendLine appends an entry as a line of NDJSON: the members of the change and, for an entry
// from a hub, its position and datetime there.
func appendLine(dst []byte, e *feed.Entry) []byte {
	dst = append(dst, '{')
	c := e.Change
	if e.Position > 0 {
		dst = strconv.AppendUint(append(dst, `"position":`...), e.Position, 10)
		dst = resourcesync.AppendTimeMicro(append(dst, `,"datetime":"`...), e.Micros)
		dst = append(dst, `",`...)
		if !c.Datetime.IsZero() {
			dst = resourcesync.AppendTime(append(dst, `"sourceDatetime":"`...), c.Datetime)
			dst = append(dst, `",`...)
		}
		c.Datetime = time.Time{}
	}
	return append(resourcesync.AppendJSONMembers(dst, &c), "}\n"...)
}

// Lines is a Sink that writes every entry as a line of NDJSON to W. If W is a file, Apply syncs
// it.
type Lines struct{ W io.Writer }

// Apply writes the entries. Entries written before a crash may be written again.
func (l Lines) Apply(_ context.Context, entries []feed.Entry) error {
	if _, err := l.W.Write(encodeLines(entries)); err != nil {
		return fmt.Errorf("write changes: %w", err)
	}
	if f, ok := l.W.(interface{ Sync() error }); ok { // else the cursor would be durable before the lines
		if err := f.Sync(); IsDiskFailure(err) { // a pipe cannot be synced
			return fmt.Errorf("write changes: %w", err)
		}
	}
	return nil
}

// Retry returns an empty Backlog: Lines stores no work.
func (Lines) Retry(context.Context, bool) (Backlog, error) { return Backlog{}, nil }

// A Command is a Sink that runs a command for each batch of entries. The command reads them from
// its standard input, each as a line of NDJSON.
type Command struct {
	Name   string
	Args   []string
	Stdout io.Writer // standard output of the command; nil discards it
	Stderr io.Writer // standard error of the command; nil discards it

	RetryPause time.Duration // pause before a failures command runs again, doubled each time, up to a minute; default 1 s
	OnRetry    func(err error, wait time.Duration)
}

const (
	commandGrace    = 10 * time.Second // time to exit after SIGTERM
	maxCommandPause = time.Minute
)

// Apply runs the command until it exits with status 0, and blocks until then or until ctx is
// canceled. After the cancellation, the command gets SIGTERM and is killed ten seconds later.
func (c *Command) Apply(ctx context.Context, entries []feed.Entry) error {
	if len(entries) == 0 {
		return nil
	}
	text := encodeLines(entries)
	for failures := 0; ; failures++ {
		err := c.run(ctx, text)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil {
			return nil
		}
		err = fmt.Errorf("run command %s: %w", c.Name, err)
		if errors.Is(err, exec.ErrNotFound) {
			return err
		}
		pause := backoff.Exponential(cmp.Or(c.RetryPause, time.Second), maxCommandPause, failures)
		if c.OnRetry != nil {
			c.OnRetry(err, pause)
		}
		if !backoff.Wait(ctx, pause) {
			return ctx.Err()
		}
	}
}

func (c *Command) run(ctx context.Context, text []byte) error {
	cmd := exec.CommandContext(ctx, c.Name, c.Args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(text), c.Stdout, c.Stderr
	cmd.Cancel = func() error { return interrupt(cmd.Process) }
	cmd.WaitDelay = commandGrace
	return cmd.Run()
}

// Retry returns an empty Backlog: Apply returns only after the command has succeeded.
func (c *Command) Retry(context.Context, bool) (Backlog, error) { return Backlog{}, nil }
