package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/durable"
	"github.com/rshub/rshub/internal/filelock"
)

// A CursorFile is a CursorStore in a text file. Each Save appends a line with the name of the set, a
// space, and the cursor. The last line of a set counts. Text after the last newline is the rest of an
// interrupted write, and ignored. When most lines are obsolete, Save replaces the file by one with a
// line for each set.
//
// What Save has stored survives a crash of the program. A crash of the machine may undo the calls since
// the last sync of the file, so changes are repeated. Save syncs it if a second has passed since then,
// and Close does. It is safe for concurrent use.
type CursorFile struct {
	path string

	mu      sync.Mutex
	file    *os.File // nil after Close, or if the file could not be opened again
	cursors map[string]feed.Cursor
	size    int64     // size of the complete lines
	needed  int64     // size of the last line of each set
	synced  time.Time // time of the last sync
}

const (
	cursorSync     = time.Second // minimum time between two syncs by Save
	maxCursorWaste = 64 << 10    // size of a file that is not compacted whatever it has
)

// OpenCursorFile opens a CursorFile, which is created if it does not exist. Only one process at a time
// can open it. A file with another content is an error, and is not changed. The caller must close the
// CursorFile.
func OpenCursorFile(path string) (*CursorFile, error) {
	f := &CursorFile{path: path}
	if err := f.open(); err != nil {
		return nil, fmt.Errorf("open cursor file: %w", err)
	}
	return f, nil
}

// open opens and locks the file, and reads the cursors.
func (f *CursorFile) open() error {
	file, err := os.OpenFile(f.path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		if file, err = os.OpenFile(f.path, os.O_RDWR|os.O_CREATE, 0o644); err == nil {
			err = durable.SyncDir(filepath.Dir(f.path))
		}
	}
	if err != nil {
		return err
	}
	if err := f.load(file); err != nil {
		_ = file.Close()
		return err
	}
	f.file = file
	return nil
}

// load locks a file, reads the cursors and removes the rest of an interrupted write.
func (f *CursorFile) load(file *os.File) error {
	if !filelock.Lock(file) {
		return fmt.Errorf("%s: in use by another process", f.path)
	}
	text, err := io.ReadAll(file)
	if err != nil {
		return err
	}
	cursors, size, err := parseCursorFile(text)
	if err != nil {
		return fmt.Errorf("%s: %w", f.path, err)
	}
	if size < len(text) {
		if err := file.Truncate(int64(size)); err != nil {
			return err
		}
	}
	f.cursors, f.size, f.needed = cursors, int64(size), 0
	for set, at := range cursors {
		f.needed += int64(len(cursorLine(set, at)))
	}
	return nil
}

// parseCursorFile parses the text of a CursorFile. size is the size of its complete lines.
func parseCursorFile(text []byte) (cursors map[string]feed.Cursor, size int, err error) {
	cursors = map[string]feed.Cursor{}
	for n := 1; ; n++ {
		line, _, complete := bytes.Cut(text[size:], []byte("\n"))
		if !complete {
			return cursors, size, nil
		}
		size += len(line) + 1
		if bytes.IndexByte(line, 0) >= 0 {
			continue // blocks that were not written before a crash of the machine
		}
		name, cursor, _ := bytes.Cut(bytes.TrimSuffix(line, []byte("\r")), []byte(" "))
		set := string(name)
		at, err := feed.ParseCursor(string(cursor))
		if err != nil || feed.CheckSet(set) != nil {
			return nil, 0, fmt.Errorf("line %d: got %.80q, want a set and its cursor, such as demo 12-1795342530123456", n, line)
		}
		cursors[set] = at
	}
}

func cursorLine(set string, at feed.Cursor) []byte {
	return append(at.Append([]byte(set+" ")), '\n')
}

// Load implements CursorStore.
func (f *CursorFile) Load(context.Context) (map[string]feed.Cursor, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.cursors), nil
}

// Save implements CursorStore. If it returns an error, the file has the former cursor, or this one.
func (f *CursorFile) Save(_ context.Context, set string, cursor feed.Cursor) error {
	if err := feed.CheckSet(set); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file == nil {
		return fmt.Errorf("save cursor: %s: %w", f.path, fs.ErrClosed)
	}
	former, known := f.cursors[set]
	if known && former == cursor {
		return nil
	}
	line := cursorLine(set, cursor)
	// The rest of an earlier write that failed is overwritten. What then remains of it is behind the
	// last newline.
	if _, err := f.file.WriteAt(line, f.size); err != nil {
		return fmt.Errorf("save cursor: %w", err)
	}
	f.size += int64(len(line))
	f.needed += int64(len(line))
	if known {
		f.needed -= int64(len(cursorLine(set, former)))
	}
	f.cursors[set] = cursor
	if f.size > maxCursorWaste && f.size > 4*f.needed {
		if err := f.compactLocked(); err != nil {
			return fmt.Errorf("compact cursor file: %w", err)
		}
	}
	if now := time.Now(); now.Sub(f.synced) >= cursorSync {
		f.synced = now
		if err := f.file.Sync(); err != nil {
			return fmt.Errorf("save cursor: %w", err)
		}
	}
	return nil
}

// compactLocked replaces the file by one with a line for each set. After a crash the file is the former
// or the new one. After an error, f may be closed.
func (f *CursorFile) compactLocked() error {
	info, err := f.file.Stat()
	if err != nil {
		return err
	}
	text := make([]byte, 0, f.needed)
	for _, set := range slices.Sorted(maps.Keys(f.cursors)) {
		text = append(text, cursorLine(set, f.cursors[set])...)
	}
	file, err := os.OpenFile(f.path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, info.Mode().Perm())
	if err != nil {
		return err
	}
	if _, err := file.Write(text); err != nil {
		return errors.Join(err, file.Close(), os.Remove(file.Name()))
	}
	if err := f.file.Close(); err != nil { // Windows does not replace an open file
		return errors.Join(err, file.Close(), os.Remove(file.Name()))
	}
	f.file = nil
	if err := durable.Replace(file, f.path); err != nil {
		return errors.Join(err, f.open())
	}
	return f.open()
}

// Close syncs and closes the file. Save then returns an error.
func (f *CursorFile) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file == nil {
		return nil
	}
	err := errors.Join(f.file.Sync(), f.file.Close())
	f.file = nil
	return err
}
