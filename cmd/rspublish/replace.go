package main

import (
	"errors"
	"os"
	"path/filepath"
)

// replace writes a file. Even after a crash, either the whole old file or the whole new
// one is there. Only one process at a time may replace a file.
func replace(path string, b []byte) error {
	next := path + ".new"
	err := writeSynced(next, b)
	if err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		_ = os.Remove(next)
		return err
	}
	if dir, err := os.Open(filepath.Dir(path)); err == nil {
		_ = dir.Sync() // not every file system can; then the rename is as durable as it gets
		_ = dir.Close()
	}
	return nil
}

func writeSynced(path string, b []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Sync(), f.Close())
}
