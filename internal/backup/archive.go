package backup

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
	"strconv"
	"strings"
	"time"

	"github.com/rshub/rshub/changelog/disklog"
	"github.com/rshub/rshub/internal/durable"
)

// archiveEnd is the name of the last entry in an archive. An archive without it is incomplete.
const archiveEnd = "rshub-backup-is-complete"

// writeArchive writes the files of a directory as an archive.
func writeArchive(w io.Writer, dir string) error {
	archive := tar.NewWriter(w)
	if err := archive.AddFS(os.DirFS(dir)); err != nil {
		return err
	}
	if err := archive.WriteHeader(&tar.Header{Name: archiveEnd, Mode: 0o600, ModTime: time.Now()}); err != nil {
		return err
	}
	return archive.Close()
}

// Fetch copies the change memory of a running hub on this machine to the new directory dir. listen
// is the hub's Config.OpsListen. If the hub has tokens, token must have the right to operate. The
// directory appears under its name only when all of its files are complete and durable. Fetch
// blocks until then, and returns the number of files and bytes that it copied. It copies nothing if
// less than reserve bytes of disk space would remain, because the hub may need them.
func Fetch(ctx context.Context, listen, token, dir string, reserve uint64) (files int, bytes int64, err error) {
	ops, err := OpsAddress(listen)
	if err != nil {
		return 0, 0, err
	}
	transport := &http.Transport{DisableKeepAlives: true} // no proxy: it would see the token
	ops = "http://" + ops
	if _, err := os.Lstat(dir); err == nil {
		return 0, 0, fmt.Errorf("%s exists; use a new directory for the backup", dir)
	}
	partial := dir + ".partial"
	if err := os.Mkdir(partial, 0o700); errors.Is(err, fs.ErrExist) {
		return 0, 0, fmt.Errorf("%s exists: another backup is in progress, or one was killed; in the latter case remove it", partial)
	} else if err != nil {
		return 0, 0, fmt.Errorf("create directory for backup: %w", err)
	}
	defer os.RemoveAll(partial)
	if files, bytes, err = fetchArchive(ctx, &http.Client{Transport: transport}, ops, token, partial, reserve); err != nil {
		return 0, 0, fmt.Errorf("fetch backup from hub at %s: %w", ops, err)
	}
	if err = os.Rename(partial, dir); err == nil {
		err = durable.SyncDir(filepath.Dir(dir))
	}
	if err != nil {
		return 0, 0, fmt.Errorf("rename backup: %w", err)
	}
	return files, bytes, nil
}

// OpsAddress returns the address by which this machine reaches a hub whose Config.OpsListen is
// listen. If the hub listens on all addresses, this is loopback.
func OpsAddress(listen string) (string, error) {
	if listen == "" {
		return "", errors.New("Config.OpsListen is empty")
	}
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return "", fmt.Errorf("Config.OpsListen: %w", err)
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

// fetchArchive fetches a backup from a hub and saves it in a directory, complete and durable.
func fetchArchive(ctx context.Context, client *http.Client, ops, token, dir string, reserve uint64) (files int, bytes int64, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, ops+"/backup", nil)
	if err != nil {
		return 0, 0, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, 0, fmt.Errorf("is it running? %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 2048))
		return 0, 0, fmt.Errorf("got status %s: %s", resp.Status, strings.TrimSpace(string(text)))
	}
	if err := checkSpace(resp.Header.Get(sizeHeader), dir, reserve); err != nil {
		return 0, 0, err
	}
	return readArchive(resp.Body, dir)
}

// checkSpace returns an error if a directory has too little space for files of the given size in
// bytes. An invalid size is ignored, because hubs of older versions do not send it.
func checkSpace(size, dir string, reserve uint64) error {
	want, err := strconv.ParseUint(size, 10, 64)
	if err != nil {
		return nil
	}
	free, err := disklog.FreeSpace(dir)
	if err == nil && free < want+reserve {
		return fmt.Errorf("the disk of %s has %d MiB left, want %d MiB for the backup and %d MiB for the reserve", dir, free>>20, want>>20, reserve>>20)
	}
	return nil
}

// readArchive saves the files of an archive in a directory.
func readArchive(r io.Reader, dir string) (files int, bytes int64, err error) {
	archive := tar.NewReader(r)
	for {
		h, err := archive.Next()
		switch {
		case errors.Is(err, io.EOF):
			return files, bytes, errors.New("backup is incomplete")
		case err != nil:
			return files, bytes, err
		case h.Name == archiveEnd:
			return files, bytes, syncTree(dir)
		case !filepath.IsLocal(h.Name):
			return files, bytes, fmt.Errorf("backup contains the invalid path %q", h.Name)
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

// saveFile writes a file durably, so that it survives a power failure.
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

// syncTree syncs a directory and all directories below it.
func syncTree(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		return durable.SyncDir(path)
	})
}
