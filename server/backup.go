package server

import (
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/rshub/rshub/changelog/disklog"
	"github.com/rshub/rshub/problem"
	"github.com/rshub/rshub/transfer"
)

// A backup serves a copy of the change memory on the disk.
type backup struct {
	data string
	disk *disklog.Log // nil: the change memory is in Redis
	keys bool         // secrets are encrypted
	log  *slog.Logger
}

// serve answers with a tar archive of the change memory as it is now. The archive is
// a data directory for a hub. The hub goes on with its work meanwhile.
func (b *backup) serve(w http.ResponseWriter, r *http.Request) error {
	if b.disk == nil {
		return problem.New(http.StatusNotImplemented, "backup", "the change memory is in Redis; back up Redis")
	}
	tmp, err := os.MkdirTemp(b.data, backupPrefix+"*")
	if err == nil && b.keys { // files may still have what was encrypted since
		err = b.disk.Keep(callbackKeep).Forget(r.Context())
	}
	if err == nil {
		defer os.RemoveAll(tmp)
		err = b.disk.Checkpoint(filepath.Join(tmp, storeDir))
	}
	if err != nil {
		return problem.New(http.StatusInternalServerError, "internal", "the backup could not be made: "+err.Error())
	}
	w.Header().Set("Content-Type", "application/x-tar")
	if err := transfer.WriteArchive(w, tmp); err != nil {
		b.log.ErrorContext(r.Context(), "backup was cut short", "err", err)
		panic(http.ErrAbortHandler) // breaks the connection, so that the client does not take the archive for complete
	}
	return nil
}

// backupPrefix begins the name of the directory in which the hub prepares a backup.
// The directory is on the same file system as the memory, so that most files are
// linked and not copied.
const backupPrefix = ".rshub-backup-"

// removeOldBackups removes the directories that a hub left behind when it was killed
// during a backup.
func removeOldBackups(data string) error {
	entries, err := os.ReadDir(data)
	if err != nil {
		return fmt.Errorf("look for unfinished backups: %w", err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), backupPrefix) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(data, e.Name())); err != nil {
			return fmt.Errorf("remove an unfinished backup: %w", err)
		}
	}
	return nil
}
