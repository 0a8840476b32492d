package server

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"testing"
)

// A data directory without write permission is an error that names the user of the hub.
func TestExplainPermission(t *testing.T) {
	denied := &fs.PathError{Op: "mkdir", Path: "/data/changes", Err: fs.ErrPermission}
	want := fmt.Sprintf("mkdir /data/changes: permission denied; the hub runs as user %d and group %d, which must be able to write to /data", os.Getuid(), os.Getgid())
	if got := explainPermission(fmt.Errorf("open: %w", denied), "/data").Error(); got != "open: "+want {
		t.Errorf("explainPermission(%v) = %q, want %q", denied, got, "open: "+want)
	}
	if got := explainPermission(io.ErrUnexpectedEOF, "/data"); got != io.ErrUnexpectedEOF {
		t.Errorf("explainPermission(%v) = %v, want the same error", io.ErrUnexpectedEOF, got)
	}
}
