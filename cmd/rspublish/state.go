package main

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// A state says how far the publishing of one input came. That of a file is on
// disk from before its first batch is sent until all is published; that of a
// stream lives only as long as the run. It never holds a token.
type state struct {
	Version int       `json:"version"`
	File    string    `json:"file"`
	Hub     string    `json:"hub"`
	Set     string    `json:"set"`
	Key     string    `json:"key"`
	SHA256  string    `json:"sha256"`
	Changes int       `json:"changes"` // accepted
	Batches int       `json:"batches"` // accepted
	Cursor  string    `json:"cursor"`  // of the last accepted change
	Done    bool      `json:"done"`    // kept until the other files of the run are done too
	Updated time.Time `json:"updated"`

	path string // empty where there is no file
}

const stateVersion = 1

func newState(in *input, cfg *config) *state {
	s := &state{Version: stateVersion, File: in.name, Hub: cfg.hub, Set: cfg.set, SHA256: in.sum, Key: cfg.key}
	if s.Key == "" || in.file != nil {
		s.Key = rand.Text()
	}
	return s
}

// A shelf is where the state of a file may be: beside it, or else, where that
// cannot be written, in the user's cache directory.
type shelf []string

func newShelf(file string, cacheDir func() (string, error)) shelf {
	places := shelf{file + ".rspublish"}
	if dir, err := cacheDir(); err == nil {
		if abs, err := filepath.Abs(file); err == nil {
			sum := sha256.Sum256([]byte(abs))
			places = append(places, filepath.Join(dir, "rspublish", hex.EncodeToString(sum[:16])+".rspublish"))
		}
	}
	return places
}

// load returns the state on the shelf, or nil.
func (s shelf) load() (*state, error) {
	for _, path := range s {
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read the state: %w", err)
		}
		st := &state{path: path}
		if err := json.Unmarshal(b, st); err != nil || st.Version != stateVersion || st.Key == "" {
			return nil, fmt.Errorf("%s is not a state that this rspublish wrote: remove it, or start anew with -restart", path)
		}
		return st, nil
	}
	return nil, nil
}

// put writes st to the first place that can be written.
func (s shelf) put(st *state) error {
	var first error
	for i, path := range s {
		if i > 0 {
			_ = os.MkdirAll(filepath.Dir(path), 0o700) // if it fails, so does what follows
		}
		st.path = path
		err := st.save()
		if err == nil {
			return nil
		}
		if first == nil {
			first = err
		}
	}
	st.path = ""
	return fmt.Errorf("there is no place to keep how far it came: %w", first)
}

func (s shelf) clear() error {
	for _, path := range s {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove the state: %w", err)
		}
	}
	return nil
}

// save writes the state so that, whatever happens, the old or the new one is on
// disk, whole.
func (s *state) save() error {
	if s.path == "" {
		return nil
	}
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("write the state: %w", err)
	}
	next := s.path + ".new" // the input is locked, so nobody else writes it
	if err := writeSynced(next, append(b, '\n')); err != nil {
		_ = os.Remove(next)
		return fmt.Errorf("write the state: %w", err)
	}
	if err := os.Rename(next, s.path); err != nil {
		_ = os.Remove(next)
		return fmt.Errorf("write the state: %w", err)
	}
	if dir, err := os.Open(filepath.Dir(s.path)); err == nil {
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

// remove ends the state's time on disk.
func (s *state) remove() error {
	if s.path == "" {
		return nil
	}
	if err := os.Remove(s.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the state: %w", err)
	}
	return nil
}
