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
	c := &Command{Name: "/bin/sh", Args: []string{"-c", "cat >>" + dir + "/all; test -e " + dir + "/fine"}, RetryPause: time.Millisecond, OnRetry: func(error, time.Duration) {
		if failed++; failed == 2 {
			if err := os.WriteFile(dir+"/fine", nil, 0o666); err != nil {
				t.Error(err)
			}
		}
	}}
	if err := c.Apply(t.Context(), entries); err != nil || failed != 2 {
		t.Errorf("Apply() = %v after %d failures, want nil after 2", err, failed)
	}
	line := `{"position":7,"datetime":"1970-01-01T00:00:00.000001Z","sourceDatetime":"1970-01-01T00:00:00Z","loc":"https://h/a","change":"created"}` + "\n"
	if got, err := os.ReadFile(dir + "/all"); err != nil || string(got) != strings.Repeat(line, 3) {
		t.Errorf("input of the command = %q, %v, want 3 times %q", got, err, line)
	}
	ctx, cancel := context.WithCancel(t.Context())
	c = &Command{Name: "/bin/sh", Args: []string{"-c", "exit 1"}, OnRetry: func(error, time.Duration) { cancel() }}
	if err := c.Apply(ctx, entries); !errors.Is(err, context.Canceled) {
		t.Errorf("Apply() = %v, want context.Canceled", err)
	}
	c = &Command{Name: "no-such-command-at-all"}
	if err := c.Apply(t.Context(), entries); err == nil {
		t.Error("Apply() with a missing command = nil, want an error")
	}
}

// A syncRecorder is a file that records how many bytes are durable.
type syncRecorder struct {
	*os.File
	durable int64
}

func (s *syncRecorder) Sync() error {
	info, err := s.Stat()
	if err == nil {
		s.durable, err = info.Size(), s.File.Sync()
	}
	return err
}

// The cursor is stored after Apply, so Apply syncs the lines. It also writes to a pipe, which
// cannot be synced.
func TestLinesAreDurable(t *testing.T) {
	f, err := os.Create(t.TempDir() + "/lines")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	entries := []feed.Entry{{Change: resourcesync.Change{Loc: "https://h/a", Change: resourcesync.Created}}}
	s := &syncRecorder{File: f}
	if err := (Lines{s}).Apply(t.Context(), entries); err != nil || s.durable != int64(len(encodeLines(entries))) {
		t.Errorf("Apply() = %v with %d durable bytes, want nil with %d", err, s.durable, len(encodeLines(entries)))
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if err := (Lines{w}).Apply(t.Context(), entries); err != nil {
		t.Error(err)
	}
}
