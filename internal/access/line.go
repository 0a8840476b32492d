package access

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"
	"unicode"

	"github.com/rshub/rshub/internal/durable"
)

// NewLine creates a token with rights for a name, and returns the token and its line in a tokens
// file. The token expires at expires, unless that is zero.
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

// AddLine adds a line to a tokens file, if the result is valid. A hub never reads an incomplete
// file. The file keeps its owner, group and mode; if that is impossible, AddLine returns an error.
// The line is durable when AddLine returns nil.
func AddLine(path, line string) error {
	mode := os.FileMode(0o600)
	if info, err := os.Stat(path); err == nil {
		mode = info.Mode().Perm()
	}
	// The new file is also a lock, so it is created before the old one is read. Without the
	// lock, one of two concurrent calls would lose its line.
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s.new exists: another command is running or was killed; if it was killed, remove the file", path)
	}
	if err != nil {
		return fmt.Errorf("write tokens: %w", err)
	}
	text, err := appendLine(path, line)
	if err == nil {
		_, err = f.WriteString(text)
		err = errors.Join(err, durable.KeepOwner(f, path)) // the caller may be root, but not the hub
		err = errors.Join(err, f.Chmod(mode))              // the umask may have removed permissions that the group of the hub needs
	}
	if err != nil {
		_ = f.Close()           // the file is abandoned
		_ = os.Remove(f.Name()) // if this fails, the next command reports the file
	} else {
		err = durable.Replace(f, path)
	}
	if err != nil {
		return fmt.Errorf("add line to %s: %w", path, err)
	}
	return nil
}

// appendLine returns the text of a tokens file with an additional line. The file need not exist.
func appendLine(path, line string) (string, error) {
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	text := string(old)
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	text += line + "\n"
	_, err = ReadTokens(strings.NewReader(text))
	return text, err
}
