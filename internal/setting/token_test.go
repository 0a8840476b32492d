package setting

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestToken(t *testing.T) {
	write := func(text string) string {
		file := filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	for _, test := range []struct {
		file, env, want, says string
	}{
		{"", "", "", ""},
		{"", " a1 \n", "a1", ""},
		{write("b2\n"), "a1", "b2", ""},
		{write(" \n"), "a1", "", "is empty"},
		{write("b 2"), "", "", "invalid token"},
		{"", "é", "", "invalid token"},
		{filepath.Join(t.TempDir(), "none"), "a1", "", "read token"},
	} {
		got, err := Token(test.file, test.env)
		if got != test.want || (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), test.says) {
			t.Errorf("Token(%q, %q) = %q, %v", test.file, test.env, got, err)
		}
	}
}
