package access

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"
	"unicode"
)

// NewLine makes a token with rights for somebody, until a time if that is not zero. It
// returns the token, and the line that a tokens file holds of it.
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
// It makes the new file before it reads the old one. So the new file is also a lock: if
// two callers ran at the same time, the line of one of them would be lost.
func AddLine(path, line string) (err error) {
	mode := os.FileMode(0o600)
	if info, err := os.Stat(path); err == nil {
		mode = info.Mode().Perm()
	}
	beside := path + ".new"
	f, err := os.OpenFile(beside, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists: another command is writing the tokens. If none is, a command was killed; then remove the file", beside)
	}
	if err != nil {
		return fmt.Errorf("write tokens: %w", err)
	}
	defer func() {
		if err != nil {
			_ = f.Close()         // the file is not used
			_ = os.Remove(beside) // if the file stays, the next command says so
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
	return nil
}
