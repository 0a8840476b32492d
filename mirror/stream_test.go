package mirror

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

func TestCommand(t *testing.T) {
	dir := t.TempDir()
	entries := []feed.Entry{{Cursor: feed.Cursor{Position: 7, Micros: 1}, Change: resourcesync.Change{Loc: "https://h/a", Change: resourcesync.Created, Datetime: time.Unix(0, 0).UTC()}}}
	failed := 0
	c := &Command{Name: "/bin/sh", Args: []string{"-c", "cat >>" + dir + "/all; test -e " + dir + "/fine"}, Pause: time.Millisecond, Note: func(error, time.Duration) {
		if failed++; failed == 2 {
			if err := os.WriteFile(dir+"/fine", nil, 0o666); err != nil {
				t.Error(err)
			}
		}
	}}
	if err := c.Apply(t.Context(), entries); err != nil || failed != 2 {
		t.Errorf("Apply = %v after %d failures", err, failed)
	}
	line := `{"position":7,"datetime":"1970-01-01T00:00:00.000001Z","sourceDatetime":"1970-01-01T00:00:00Z","loc":"https://h/a","change":"created"}` + "\n"
	if got, err := os.ReadFile(dir + "/all"); err != nil || string(got) != strings.Repeat(line, 3) {
		t.Errorf("the command got %s, %v", got, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	c = &Command{Name: "/bin/sh", Args: []string{"-c", "exit 1"}, Note: func(error, time.Duration) { cancel() }}
	if err := c.Apply(ctx, entries); !errors.Is(err, context.Canceled) {
		t.Errorf("Apply = %v", err)
	}
	c = &Command{Name: "no-such-command-at-all"}
	if err := c.Apply(t.Context(), entries); err == nil {
		t.Error("a command that is not there succeeded")
	}
}
