package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	stdlog "log"
	"log/slog"
	"os"
	"os/signal"
	"reflect"
	"regexp"
	"syscall"

	"github.com/rshub/rshub/internal/progress"
	"github.com/rshub/rshub/internal/server"
	"github.com/rshub/rshub/internal/trail"
)

// serve runs the hub until ctx is canceled. It reopens the audit log on SIGHUP.
func serve(ctx context.Context, stderr io.Writer) error {
	hub, err := newHub(stderr)
	if err != nil {
		return err
	}
	if path := os.Getenv("RSHUB_AUDIT_LOG"); path != "" && path != trail.Stderr {
		hangup := make(chan os.Signal, 1)
		signal.Notify(hangup, syscall.SIGHUP) // otherwise SIGHUP terminates the process
		stopped := make(chan struct{})
		defer func() { signal.Stop(hangup); close(hangup); <-stopped }()
		go func() {
			defer close(stopped)
			for range hangup {
				hub.ReopenAuditLog()
			}
		}()
	}
	return withVariableNames(hub.Run(ctx))
}

// newHub returns a hub that is configured by the environment and logs to stderr.
func newHub(stderr io.Writer) (*server.Server, error) {
	c, err := readConfig()
	if err = errors.Join(checkVariables(), err); err != nil {
		return nil, fmt.Errorf("configuration:\n%w", err)
	}
	log := newLogger(stderr, c.LogLevel)
	stdlog.SetFlags(0)
	stdlog.SetOutput(slog.NewLogLogger(log.Handler(), slog.LevelDebug).Writer()) // net/http logs unsolicited responses of callbacks here
	serverConfig, err := c.server(log)
	if err != nil {
		return nil, err
	}
	hub, err := server.New(serverConfig)
	return hub, withVariableNames(err)
}

var configFieldPattern = regexp.MustCompile(`\bConfig\.([A-Z]\w+)`)

// withVariableNames replaces names of fields of server.Config in the text of err by the names
// of their environment variables. The result does not wrap err.
func withVariableNames(err error) error {
	if err == nil {
		return nil
	}
	return errors.New(configFieldPattern.ReplaceAllStringFunc(err.Error(), func(field string) string {
		f, _ := reflect.TypeFor[config]().FieldByName(configFieldPattern.FindStringSubmatch(field)[1])
		return cmp.Or(f.Tag.Get("envconfig"), field)
	}))
}

// newLogger returns a logger that writes text if w is a terminal, else JSON.
func newLogger(w io.Writer, level slog.Level) *slog.Logger {
	o := &slog.HandlerOptions{Level: level}
	if progress.IsTerminal(w) {
		return slog.New(slog.NewTextHandler(w, o))
	}
	return slog.New(slog.NewJSONHandler(w, o))
}
