package disklog

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/changelog/logtest"
)

// TestLog runs in memory, so that a slow disk does not determine its duration.
func TestLog(t *testing.T) {
	t.Parallel()
	logtest.Run(t, logtest.Backend{FakeClock: true, New: func(t *testing.T, o logtest.Options) func() (changelog.Log, error) {
		opts := Options{FS: vfs.NewMem(), Now: o.Now, ClockSkew: o.ClockSkew, Fatal: fatal(t)}
		return func() (changelog.Log, error) { return Open(t.Context(), "data", opts) }
	}})
}

// fatal returns an Options.Fatal that fails the test.
func fatal(t *testing.T) func(string, error) {
	return func(msg string, err error) {
		t.Errorf("%s: %v", msg, err)
		panic(msg)
	}
}
