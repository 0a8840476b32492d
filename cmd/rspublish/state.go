package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/rshub/rshub/internal/durable"
	"github.com/rshub/rshub/internal/filelock"
)

// statePath returns the path of the state of a command: explicit if it is not empty, else a path
// in the cache directory that is derived from key.
func (p *program) statePath(explicit, command string, key ...string) (string, error) {
	if explicit != "" {
		return explicit, nil
	}
	cache, err := p.cacheDir()
	sum := sha256.Sum256([]byte(strings.Join(key, "\n")))
	return filepath.Join(cache, "rspublish", command+"-"+hex.EncodeToString(sum[:16])), err
}

// errLocked reports that another process holds the lock of the state.
var errLocked = errors.New("another rspublish is using the state")

// lockState locks the file at path until release is called. It creates the file and its
// directory if they do not exist. It does not block: if another process holds the lock, it
// returns errLocked.
func lockState(path string) (release func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("create directory of the state: %w; use -state for another one", err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open state: %w", err)
	}
	release = func() { _ = f.Close() }
	if !filelock.Lock(f) {
		release()
		return nil, fmt.Errorf("%w (%s is locked)", errLocked, path)
	}
	return release, nil
}

// storeJSON durably replaces the file at path by v as JSON. The replacement is atomic, even after
// a crash and if several processes store the file: the file is always complete.
func storeJSON(path string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.new")
	if err != nil {
		return err
	}
	if _, err := f.Write(append(b, '\n')); err != nil {
		return errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	return durable.Replace(f, path)
}
