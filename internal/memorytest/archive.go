package memorytest

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// Unpack copies the files of a tar.gz archive to a new directory, which is removed
// when the test ends.
func Unpack(t testing.TB, archive string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	files := tar.NewReader(z)
	for {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return dir
		}
		if err == nil {
			err = unpackFile(filepath.Join(dir, filepath.FromSlash(h.Name)), files)
		}
		if err != nil {
			t.Fatalf("unpack %s: %v", archive, err)
		}
	}
}

func unpackFile(path string, r io.Reader) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close())
}
