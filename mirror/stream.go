package mirror

import (
	"bytes"
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

// AppendLine appends an entry as one line of NDJSON: the members of the change, and,
// for an entry from a hub, its position and datetime there.
func AppendLine(dst []byte, e *feed.Entry) []byte {
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

// Lines is a Sink that writes every entry as a line of NDJSON.
type Lines struct{ W io.Writer }

// Apply writes the entries. What was written before a crash may be written again.
func (l Lines) Apply(_ context.Context, entries []feed.Entry) error {
	var text []byte
	for i := range entries {
		text = AppendLine(text, &entries[i])
	}
	if _, err := l.W.Write(text); err != nil {
		return fmt.Errorf("write the changes: %w", err)
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

	Pause     time.Duration // before a failed command is run again, doubled each time; default 1 s
	MostPause time.Duration // the longest of these pauses; default 1 minute
	Tries     int           // how often the command is run for one batch; default: until it succeeds
	Note      func(err error, wait time.Duration)
}

const commandGrace = 10 * time.Second // how long a command has to end by itself

// Apply runs the command until it exits with 0. It blocks until then, or until ctx is
// done. When ctx is done, the command is asked to end, and killed ten seconds later.
func (c *Command) Apply(ctx context.Context, entries []feed.Entry) error {
	if len(entries) == 0 {
		return nil
	}
	var text []byte
	for i := range entries {
		text = AppendLine(text, &entries[i])
	}
	pause, most := c.Pause, c.MostPause
	orElse(&pause, time.Second)
	orElse(&most, time.Minute)
	for try := 1; ; try++ {
		err := c.run(ctx, text)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil {
			return nil
		}
		err = fmt.Errorf("the command %s failed: %w", c.Name, err)
		if errors.Is(err, exec.ErrNotFound) || try == c.Tries {
			return err
		}
		if c.Note != nil {
			c.Note(err, pause)
		}
		if !backoff.Wait(ctx, pause) {
			return ctx.Err()
		}
		pause = min(2*pause, most)
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
