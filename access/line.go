package access

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode"
)

// NewLine makes a token with rights for a name. The token ends at expires, unless that
// is the zero Time. NewLine returns the token, and the line for it in a tokens file.
func NewLine(name, rights string, expires time.Time) (token, line string, err error) {
	token, digest := NewToken()
	words := strings.FieldsFunc(rights, func(c rune) bool { return c == ',' || unicode.IsSpace(c) })
	line = fmt.Sprintf("%s %s %s", name, digest, strings.Join(words, ","))
	if !expires.IsZero() {
		line += " expires=" + expires.UTC().Format(time.RFC3339)
	}
	if _, err := ReadTokens(strings.NewReader(line)); err != nil {
		return "", "", err
	}
	return token, line, nil
}

// AddLine adds a line to a tokens file, if the result is a valid tokens file. It writes
// a new file beside the old one and renames it, so that a hub never reads half a file.
// The new file is also a lock: AddLine makes it before it reads the old file. Without
// the lock, one of two callers at the same time would lose its line.
func AddLine(path, line string) (err error) {
	mode := os.FileMode(0o600)
	if info, err := os.Stat(path); err == nil {
		mode = info.Mode().Perm()
	}
	beside := path + ".new"
	f, err := os.OpenFile(beside, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists: another command is running, or was killed; in that case remove the file", beside)
	}
	if err != nil {
		return fmt.Errorf("write tokens: %w", err)
	}
	defer func() {
		if err != nil {
			_ = f.Close()         // the file is abandoned
			_ = os.Remove(beside) // if this fails, the next command reports the file
		}
	}()
	if err := f.Chmod(mode); err != nil { // the umask may have removed rights that the hub's group needs
		return fmt.Errorf("write tokens: %w", err)
	}
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read tokens: %w", err)
	}
	text := string(old)
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	text += line + "\n"
	if _, err := ReadTokens(strings.NewReader(text)); err != nil {
		return fmt.Errorf("add to %s: %w", path, err)
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(beside, path)
	}
	if err != nil {
		return fmt.Errorf("write tokens: %w", err)
	}
	if dir, err := os.Open(filepath.Dir(path)); err == nil { // a token that was handed out outlives a power failure
		_ = dir.Sync() // not every file system can; then the rename is as durable as it gets
		_ = dir.Close()
	}
	return nil
}
