package main

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/rshub/rshub/changelog"
)

// backupEnd is the last entry of a backup's archive: without it something is
// missing.
const backupEnd = "rshub-backup-is-complete"

// A checkpointer copies a change memory, as it is at one moment, to a directory
// that does not exist.
type checkpointer interface {
	Checkpoint(dir string) error
}

// serveBackup answers with the change memory as it is now, as a tar archive of
// a data directory. The hub goes on meanwhile.
func (s *server) serveBackup(w http.ResponseWriter, r *http.Request) {
	if s.checkpointer == nil {
		changelog.WriteError(w, r, changelog.NewStatus(http.StatusNotImplemented, "backup", "the change memory is in Redis; back up Redis"))
		return
	}
	tmp, err := os.MkdirTemp(s.config.Data, backupPrefix+"*")
	if err == nil {
		defer os.RemoveAll(tmp)
		err = s.checkpointer.Checkpoint(filepath.Join(tmp, storeDir))
	}
	if err != nil {
		s.log.ErrorContext(r.Context(), "backup failed", "err", err)
		changelog.WriteError(w, r, changelog.NewStatus(http.StatusInternalServerError, "internal", "the backup could not be made: "+err.Error()))
		return
	}
	w.Header().Set("Content-Type", "application/x-tar")
	if err := writeArchive(w, tmp); err != nil {
		s.log.ErrorContext(r.Context(), "backup was cut short", "err", err)
		panic(http.ErrAbortHandler) // the client must not take it for whole
	}
}

func writeArchive(w io.Writer, dir string) error {
	archive := tar.NewWriter(w)
	if err := archive.AddFS(os.DirFS(dir)); err != nil {
		return err
	}
	if err := archive.WriteHeader(&tar.Header{Name: backupEnd, Mode: 0o600, ModTime: time.Now()}); err != nil {
		return err
	}
	return archive.Close()
}

// backup fetches the change memory of the running hub into a new data directory.
func backup(ctx context.Context, args []string, stdout io.Writer) error {
	if len(args) != 1 || strings.HasPrefix(args[0], "-") {
		return usageError("rshub backup DIR")
	}
	dir := filepath.Clean(args[0])
	c, err := readConfig()
	if err != nil {
		return err
	}
	ops, err := opsAddress(c.OpsListen)
	if err != nil {
		return err
	}
	if _, err := os.Lstat(dir); err == nil {
		return fmt.Errorf("%s exists; a backup goes into a new directory", dir)
	}
	partial := dir + ".partial"
	if err := os.Mkdir(partial, 0o700); errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists: another backup is under way, or one was killed and it can be removed", partial)
	} else if err != nil {
		return fmt.Errorf("make the backup's directory: %w", err)
	}
	defer os.RemoveAll(partial)
	files, bytes, err := fetchBackup(ctx, "http://"+ops+"/backup", partial)
	if err != nil {
		return fmt.Errorf("fetch a backup from the hub at %s: %w", ops, err)
	}
	if err := os.Rename(partial, dir); err != nil {
		return fmt.Errorf("name the backup: %w", err)
	}
	if err := syncDir(filepath.Dir(dir)); err != nil {
		return fmt.Errorf("name the backup: %w", err)
	}
	fmt.Fprintf(stdout, "%s holds the change memory, %d files, %d bytes; start from it with RSHUB_DATA=%s\n", dir, files, bytes, dir)
	return nil
}

// opsAddress returns where the hub that listens on an address can be reached
// from this machine: one that listens on all of its addresses, by loopback.
func opsAddress(listen string) (string, error) {
	if listen == "" {
		return "", errors.New("RSHUB_OPS_LISTEN is empty; a backup is fetched from there")
	}
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return "", fmt.Errorf("RSHUB_OPS_LISTEN: %w", err)
	}
	ip := net.ParseIP(host)
	switch {
	case host == "" || ip.Equal(net.IPv4zero):
		host = "127.0.0.1"
	case ip.Equal(net.IPv6unspecified):
		host = "::1"
	}
	return net.JoinHostPort(host, port), nil
}

// backupClient asks the hub itself. A proxy has no business with a token.
func backupClient() *http.Client { return &http.Client{Transport: &http.Transport{}} }

// fetchBackup saves the backup at url into a directory, durably and whole.
func fetchBackup(ctx context.Context, url, dir string) (files int, bytes int64, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, 0, err
	}
	if t := os.Getenv("RSHUB_TOKEN"); t != "" {
		req.Header.Set("Authorization", "Bearer "+t)
	}
	resp, err := backupClient().Do(req)
	if err != nil {
		return 0, 0, fmt.Errorf("is it running? %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 2048))
		return 0, 0, fmt.Errorf("it answered %s: %s", resp.Status, strings.TrimSpace(string(text)))
	}
	archive := tar.NewReader(resp.Body)
	for {
		h, err := archive.Next()
		switch {
		case errors.Is(err, io.EOF):
			return files, bytes, errors.New("the backup ended early")
		case err != nil:
			return files, bytes, err
		case h.Name == backupEnd:
			return files, bytes, syncTree(dir)
		case !filepath.IsLocal(h.Name):
			return files, bytes, fmt.Errorf("the backup has a file outside of it, %q", h.Name)
		}
		path := filepath.Join(dir, filepath.FromSlash(h.Name))
		if h.Typeflag == tar.TypeDir {
			if err := os.MkdirAll(path, 0o700); err != nil {
				return files, bytes, err
			}
			continue
		}
		n, err := saveFile(path, archive)
		if err != nil {
			return files, bytes, err
		}
		files, bytes = files+1, bytes+n
	}
}

// saveFile writes a file durably: a backup that a power failure takes is none.
func saveFile(path string, r io.Reader) (n int64, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return 0, err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if n, err = io.Copy(f, r); err != nil {
		return n, err
	}
	return n, f.Sync()
}

// syncTree makes the names in a directory, and below it, durable.
func syncTree(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		return syncDir(path)
	})
}

// syncDir makes the names in a directory durable. Windows has no such call.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

// backupPrefix begins the name of the directory in which a backup is prepared. It is on the
// same file system as the memory, so that most of it is linked and not copied.
const backupPrefix = ".rshub-backup-"

// removeOldBackups removes what a hub that was killed during a backup left.
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
