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

// statePath returns where a command keeps its state between two runs: where the user says,
// or in the cache directory, at a name made of what the state is of.
func (p *program) statePath(explicit, command string, key ...string) (string, error) {
	if explicit != "" {
		return explicit, nil
	}
	cache, err := p.cacheDir()
	sum := sha256.Sum256([]byte(strings.Join(key, "\n")))
	return filepath.Join(cache, "rspublish", command+"-"+hex.EncodeToString(sum[:16])), err
}

// errLocked reports that another process holds the lock of a state.
var errLocked = errors.New("another rspublish uses the state")

// lockState makes the directory of a lock, and locks it until release. The error is errLocked
// if another process holds the lock. It does not wait.
func lockState(path string) (release func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of the state: %w; -state names another", err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the state: %w", err)
	}
	release = func() { _ = f.Close() }
	if !filelock.Lock(f) {
		release()
		return nil, fmt.Errorf("%w (it has locked %s)", errLocked, path)
	}
	return release, nil
}

// storeJSON stores v as JSON in a file, and makes it durable. At any time, also after a crash and
// while other processes store the file, it is one of the stored files, as a whole.
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
