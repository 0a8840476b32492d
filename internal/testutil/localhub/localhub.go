// Package localhub starts a hub in the process of a test: with its memory on disk, without tokens,
// and with defaults for all other settings.
//
// Tests of the hub itself use package servertest. Tests in e2e start the built program instead.
package localhub

import (
	"log/slog"
	"testing"

	"github.com/rshub/rshub/internal/server"
	"github.com/rshub/rshub/internal/testutil"
	"github.com/rshub/rshub/internal/testutil/servertest"
)

// Start runs a hub until the test ends.
func Start(t testing.TB) *servertest.Hub {
	t.Helper()
	return StartAt(t, t.TempDir())
}

// StartAt is Start with the memory in the given directory.
func StartAt(t testing.TB, dir string) *servertest.Hub {
	t.Helper()
	var log testutil.Log
	s, err := server.New(server.Config{Listen: "127.0.0.1:0", Data: dir, Logger: log.Logger(slog.LevelInfo)})
	if err != nil {
		t.Fatal(err)
	}
	return servertest.Start(t, s, &log)
}
