// Package backup sends a copy of the change memory of a running hub, if it is on disk, as a tar
// archive, and extracts such an archive for rshub backup.
//
// Package disklog creates the copy while the hub is working. The archive is a data directory for a
// hub. A memory in Redis is backed up with the tools of Redis.
package backup

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/rshub/rshub/changelog/disklog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/problem"
)

// A Source is a change memory to back up.
type Source struct {
	Data    string          // data directory of the hub
	Memory  string          // directory of the memory within the data directory
	Disk    *disklog.Log    // nil if the memory is in Redis
	Secrets *disklog.Bucket // bucket of encrypted secrets, or nil
	Logger  *slog.Logger
}

// Serve responds with a tar archive of the current change memory. The archive is a data directory
// for a hub. The hub continues to work in the meantime.
func (b *Source) Serve(w http.ResponseWriter, r *http.Request) error {
	if b.Disk == nil {
		return problem.New(http.StatusNotImplemented, "backup", "the change memory is in Redis; back up Redis")
	}
	tmp, err := os.MkdirTemp(b.Data, prefix+"*")
	if err == nil {
		defer os.RemoveAll(tmp)
	}
	if err == nil && b.Secrets != nil { // files may still contain secrets that were encrypted later
		err = b.Secrets.EraseReplaced(r.Context())
	}
	if err == nil {
		err = b.Disk.Checkpoint(filepath.Join(tmp, b.Memory))
	}
	var size int64
	if err == nil {
		size, err = sizeOf(tmp)
	}
	if errors.Is(err, feed.ErrFull) {
		return problem.New(http.StatusInsufficientStorage, "full", "create backup: "+err.Error())
	}
	if err != nil {
		return problem.New(http.StatusInternalServerError, "internal", "create backup: "+err.Error())
	}
	w.Header().Set("Content-Type", "application/x-tar")
	w.Header().Set(sizeHeader, strconv.FormatInt(size, 10))
	if err := writeArchive(w, tmp); err != nil {
		b.Logger.ErrorContext(r.Context(), "sending backup failed", "err", err)
		panic(http.ErrAbortHandler) // closes the connection, so that the client notices that the archive is incomplete
	}
	return nil
}

// sizeHeader names the header with the total size of the files in the archive, so that the client
// can check whether there is enough space.
const sizeHeader = "Rshub-Backup-Size"

// sizeOf returns the total size of all files below a directory in bytes.
func sizeOf(dir string) (bytes int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			bytes += info.Size()
		}
		return err
	})
	return bytes, err
}

// prefix starts the name of the directory in which the hub prepares a backup. The directory is on
// the same file system as the memory, so that most files are linked instead of copied.
const prefix = ".rshub-backup-"

// RemoveUnfinished removes the directories that remain in a data directory if a hub was killed
// during a backup.
func RemoveUnfinished(data string) error {
	entries, err := os.ReadDir(data)
	if err != nil {
		return fmt.Errorf("find unfinished backups: %w", err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), prefix) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(data, e.Name())); err != nil {
			return fmt.Errorf("remove unfinished backup: %w", err)
		}
	}
	return nil
}
