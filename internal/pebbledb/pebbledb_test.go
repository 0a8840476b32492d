package pebbledb

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
)

// A directory or file that is not such a database is neither opened nor changed.
func TestOpenForeignDatabase(t *testing.T) {
	dir := t.TempDir()
	db, err := pebble.Open(dir, &pebble.Options{Logger: pebbleLogger{}})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Set([]byte("a"), nil, pebble.Sync), db.Close()); err != nil {
		t.Fatal(err)
	}
	o := Options{What: "the numbers", Format: "1"}
	if _, err := Open(dir, o); err == nil || !strings.Contains(err.Error(), "foreign Pebble database") {
		t.Errorf("Open() of a foreign database = %v", err)
	}

	dir = t.TempDir()
	if db, err = Open(dir, Options{What: "the numbers", Format: "9"}); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, o); !errors.Is(err, ErrInUse) {
		t.Errorf("second Open() = %v, want ErrInUse", err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, o); err == nil || !strings.Contains(err.Error(), `format "9"`) {
		t.Errorf("Open() of another format = %v", err)
	}

	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(file, o); err == nil {
		t.Error("Open() of a file succeeded")
	}
}
