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
	"strings"
	"syscall"
	"time"
)

// A state says how far the publishing of one input came. The state of a file is on disk
// from before its first batch is sent, and stays there when all is published. So the
// file is not published again by accident. The state of a stream is only in memory. A
// state never holds a token.
type state struct {
	Version int    `json:"version"`
	File    string `json:"file"`
	Hub     string `json:"hub"`
	Set     string `json:"set"`
	Key     string `json:"key"`
	SHA256  string `json:"sha256"`         // of the file
	Size    int64  `json:"size,omitempty"` // of the file, in bytes
	Changes int    `json:"changes"`        // accepted
	Batches int    `json:"batches"`        // accepted
	Cursor  string `json:"cursor"`         // of the last accepted change

	// Sending is the body of the batch that is under way. The hub may have it or not.
	// The next run sends these bytes again, with the same key, before anything else. So
	// the answer says what the hub has, also if the file has changed meanwhile.
	Sending string `json:"sending,omitempty"`

	Done    bool      `json:"done"`    // all is published
	Updated time.Time `json:"updated"` // when Sending was first sent; without Sending, when the last batch was accepted

	path string // of the state; empty if it is only in memory
}

// Version 1 had no Size and no Sending: it does not say which batch was under way.
const stateVersion = 2

func newState(in *input, cfg *config) *state {
	s := &state{Version: stateVersion, File: in.name, Hub: cfg.hub, Set: cfg.set, SHA256: in.sum, Size: in.size, Key: cfg.key}
	if s.Key == "" {
		s.Key = rand.Text()
	}
	return s
}

// sending returns the batch that is under way. It has no changes if there is none.
func (s *state) sending() *batch {
	return &batch{first: s.Changes + 1, body: []byte(s.Sending), lines: make([]int, strings.Count(s.Sending, "\n"))}
}

// sent returns how many changes the hub has, if it has the batch that is under way.
func (s *state) sent() int { return s.Changes + len(s.sending().lines) }

// A shelf has the paths where the state of a file may be: first beside the file, and
// then, for when that cannot be written, in the user's cache directory.
type shelf []string

const stateSuffix = ".rspublish"

func newShelf(file string, cacheDir func() (string, error)) shelf {
	paths := shelf{file + stateSuffix}
	if dir, err := cacheDir(); err == nil {
		if abs, err := filepath.Abs(file); err == nil {
			sum := sha256.Sum256([]byte(abs))
			paths = append(paths, filepath.Join(dir, "rspublish", hex.EncodeToString(sum[:16])+stateSuffix))
		}
	}
	return paths
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
		if err := json.Unmarshal(b, st); err != nil || st.Version < 1 || st.Version > stateVersion || st.Key == "" {
			return nil, fmt.Errorf("%s is not a state file that this rspublish can read: remove it, or use -restart", path)
		}
		return st, nil
	}
	return nil, nil
}

// isState reports whether a file that is to be published is a state. The pattern of a
// shell easily names the states beside the files.
func isState(file string) bool {
	path, ok := strings.CutSuffix(strings.TrimSuffix(file, ".new"), stateSuffix)
	if !ok {
		return false
	}
	st, err := shelf{file}.load()
	return err == nil && st != nil && filepath.Base(st.File) == filepath.Base(path)
}

// put writes st to the first path that can be written.
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
	return fmt.Errorf("there is no place for the state file: %w", first)
}

func (s shelf) clear() error {
	for _, path := range s {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove the state: %w", err)
		}
	}
	return nil
}

// save writes the state to disk. Whatever happens, either the old state or the new one
// is there, whole.
func (s *state) save() error {
	if s.path == "" {
		return nil
	}
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("write the state: %w", err)
	}
	if err := replace(s.path, append(b, '\n')); err != nil {
		return fmt.Errorf("write the state: %w", err)
	}
	return nil
}

// replace writes a file. Whatever happens, either the old file or the new one is there,
// whole. Only one process at a time may replace a file.
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

// remove removes the state from the disk.
func (s *state) remove() error {
	if s.path == "" {
		return nil
	}
	if err := os.Remove(s.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the state: %w", err)
	}
	return nil
}
