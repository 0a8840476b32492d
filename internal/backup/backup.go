// Package backup sends a copy of the change memory of a running hub, if it is on disk, as a tar
// archive, and unpacks such an archive for rshub backup.
//
// Package disklog makes the copy while the hub works. The archive is a data directory for a hub. A
// memory in Redis is backed up with the tools of Redis.
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

// A Source is the change memory that is copied.
type Source struct {
	Data    string          // the data directory of the hub
	Memory  string          // the directory of the memory in a data directory
	Disk    *disklog.Log    // the memory; nil: it is in Redis
	Secrets *disklog.Bucket // where encrypted secrets are kept; nil: there are none
	Logger  *slog.Logger
}

// Serve answers with a tar archive of the change memory as it is now. The archive is
// a data directory for a hub. The hub goes on with its work meanwhile.
func (b *Source) Serve(w http.ResponseWriter, r *http.Request) error {
	if b.Disk == nil {
		return problem.New(http.StatusNotImplemented, "backup", "the change memory is in Redis; back up Redis")
	}
	tmp, err := os.MkdirTemp(b.Data, prefix+"*")
	if err == nil {
		defer os.RemoveAll(tmp)
	}
	if err == nil && b.Secrets != nil { // files may still have what was encrypted since
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
		return problem.New(http.StatusInsufficientStorage, "full", "the backup could not be made: "+err.Error())
	}
	if err != nil {
		return problem.New(http.StatusInternalServerError, "internal", "the backup could not be made: "+err.Error())
	}
	w.Header().Set("Content-Type", "application/x-tar")
	w.Header().Set(sizeHeader, strconv.FormatInt(size, 10))
	if err := writeArchive(w, tmp); err != nil {
		b.Logger.ErrorContext(r.Context(), "backup was cut short", "err", err)
		panic(http.ErrAbortHandler) // breaks the connection, so that the client does not take the archive for complete
	}
	return nil
}

// sizeHeader has the bytes of the files in the archive, so that the other end can check
// whether there is room for them.
const sizeHeader = "Rshub-Backup-Size"

// sizeOf returns the bytes of all files below a directory.
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

// prefix begins the name of the directory in which the hub prepares a backup.
// The directory is on the same file system as the memory, so that most files are
// linked and not copied.
const prefix = ".rshub-backup-"

// RemoveUnfinished removes the directories that a hub left behind in its data directory when
// it was killed during a backup.
func RemoveUnfinished(data string) error {
	entries, err := os.ReadDir(data)
	if err != nil {
		return fmt.Errorf("look for unfinished backups: %w", err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), prefix) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(data, e.Name())); err != nil {
			return fmt.Errorf("remove an unfinished backup: %w", err)
		}
	}
	return nil
}
