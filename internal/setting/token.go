package setting

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// Token returns the token in a file. If file is empty, it returns fromEnv, the token from the
// environment, which may be empty, too. Programs have no flag for the token itself, because every
// user of the machine can read command lines.
func Token(file, fromEnv string) (string, error) {
	token := strings.TrimSpace(fromEnv)
	if file != "" {
		b, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("read token: %w", err)
		}
		if token = strings.TrimSpace(string(b)); token == "" {
			return "", fmt.Errorf("token file %s is empty", file)
		}
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", errors.New("invalid token: want printable ASCII characters without spaces")
	}
	return token, nil
}
