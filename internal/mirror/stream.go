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

// lines returns entries as NDJSON.
func lines(entries []feed.Entry) (text []byte) {
	for i := range entries {
		text = appendLine(text, &entries[i])
	}
	return text
}

// appendLine appends an entry as one line of NDJSON: the members of the change, and,
// for an entry from a hub, its position and datetime there.
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

// Lines is a Sink that writes every entry as a line of NDJSON. It makes the lines durable if W is
// a file.
type Lines struct{ W io.Writer }

// Apply writes the entries. What was written before a crash may be written again.
func (l Lines) Apply(_ context.Context, entries []feed.Entry) error {
	if _, err := l.W.Write(lines(entries)); err != nil {
		return fmt.Errorf("write the changes: %w", err)
	}
	if f, ok := l.W.(interface{ Sync() error }); ok { // else the cursor would be durable before a file has the lines
		if err := f.Sync(); lasting(err) { // a pipe has nothing to sync
			return fmt.Errorf("write the changes: %w", err)
		}
	}
	return nil
}

// Retry has nothing to do.
func (Lines) Retry(context.Context, bool) (Left, error) { return Left{}, nil }

// A Command is a Sink that runs a command for each batch of entries. The command finds
// them on its standard input, each as a line of NDJSON.
type Command struct {
	Name   string
	Args   []string
	Stdout io.Writer // of the command; default: none
	Stderr io.Writer // of the command; default: none

	Pause time.Duration // before a failed command is run again, doubled each time, up to a minute; default 1 s
	Note  func(err error, wait time.Duration)
}

const (
	commandGrace     = 10 * time.Second // how long a command has to end by itself
	mostCommandPause = time.Minute
)

// Apply runs the command until it exits with 0. It blocks until then, or until ctx is
// done. When ctx is done, the command is asked to end, and killed ten seconds later.
func (c *Command) Apply(ctx context.Context, entries []feed.Entry) error {
	if len(entries) == 0 {
		return nil
	}
	text := lines(entries)
	for failed := 0; ; failed++ {
		err := c.run(ctx, text)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil {
			return nil
		}
		err = fmt.Errorf("the command %s failed: %w", c.Name, err)
		if errors.Is(err, exec.ErrNotFound) {
			return err
		}
		pause := backoff.Exponential(cmp.Or(c.Pause, time.Second), mostCommandPause, failed)
		if c.Note != nil {
			c.Note(err, pause)
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

// Retry has nothing to do: Apply does not return before the command has succeeded.
func (c *Command) Retry(context.Context, bool) (Left, error) { return Left{}, nil }
