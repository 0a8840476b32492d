package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"unicode"

	"github.com/rshub/rshub/access"
)

// token makes a token. It prints the token, and keeps only the token's digest.
func token(args []string, stdout io.Writer) error {
	if len(args) == 0 || args[0] != "new" {
		return usageError("rshub token new -name NAME -rights RIGHTS [-file FILE]")
	}
	flags := flag.NewFlagSet("rshub token new", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	name := flags.String("name", "", "who the token is for")
	rights := flags.String("rights", "", "publish:SET, follow:SET and operate, by comma")
	file := flags.String("file", "", "tokens file to add the line to")
	if err := flags.Parse(args[1:]); err != nil {
		return usageError(err.Error())
	}
	if flags.NArg() > 0 || *name == "" || *rights == "" || strings.ContainsAny(*name, " \t\n#") || *name == access.Anyone {
		return usageError("rshub token new -name NAME -rights RIGHTS [-file FILE]: NAME is one word, and not " + access.Anyone)
	}
	if _, err := access.ParseRights(*rights); err != nil {
		return usageError(err.Error())
	}
	text, digest := access.NewToken()
	words := strings.FieldsFunc(*rights, func(c rune) bool { return c == ',' || unicode.IsSpace(c) })
	line := fmt.Sprintf("%s %s %s", *name, digest, strings.Join(words, ","))
	if _, err := access.ReadTokens(strings.NewReader(line)); err != nil {
		return usageError(err.Error())
	}
	if *file == "" {
		fmt.Fprintf(stdout, "token: %s\nadd to RSHUB_TOKENS_FILE: %s\n", text, line)
		return nil
	}
	if err := addLine(*file, line); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "token: %s\nits line was added to %s; the hub reads it when it starts\n", text, *file)
	return nil
}

// addLine adds a line to a tokens file, if the result is a valid tokens file. It writes
// a new file beside the old one and renames it, so that a hub never reads half a file.
// It makes the new file before it reads the old one. So the new file is also a lock: if
// two commands ran at the same time, the line of one of them would be lost.
func addLine(path, line string) (err error) {
	mode := os.FileMode(0o600)
	if info, err := os.Stat(path); err == nil {
		mode = info.Mode().Perm()
	}
	beside := path + ".new"
	f, err := os.OpenFile(beside, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists: another command is at work, or one was killed and it can be removed", beside)
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
	if _, err := access.ReadTokens(strings.NewReader(text)); err != nil {
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
