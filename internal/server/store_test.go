package server

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"testing"
)

// A data directory that the hub may not write to is an error that names the hub's user.
func TestExplainDenied(t *testing.T) {
	denied := &fs.PathError{Op: "mkdir", Path: "/data/changes", Err: fs.ErrPermission}
	want := fmt.Sprintf("mkdir /data/changes: permission denied; the hub runs as user %d and group %d: let it write to /data", os.Getuid(), os.Getgid())
	if got := explainDenied(fmt.Errorf("open: %w", denied), "/data").Error(); got != "open: "+want {
		t.Errorf("explainDenied(%v) = %q, want %q", denied, got, "open: "+want)
	}
	if got := explainDenied(io.ErrUnexpectedEOF, "/data"); got != io.ErrUnexpectedEOF {
		t.Errorf("explainDenied(%v) = %v", io.ErrUnexpectedEOF, got)
	}
}
