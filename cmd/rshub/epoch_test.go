package main

import (
	"strings"
	"testing"
)

func TestEpochCalls(t *testing.T) {
	setenv(t)
	t.Chdir(t.TempDir())
	for _, test := range []struct {
		args string
		code int
		says string
	}{
		{"", 2, "rshub epoch MEMORY"},
		{"-h", 2, "rshub epoch MEMORY"},
		{"a b", 2, "rshub epoch MEMORY"},
		{"localhost:6379", 2, "not a URL such as redis://localhost:6379"},
		{"none", 1, "no change memory in none"},
		{"redis://user:secret@127.0.0.1:1", 1, "the change memory cannot be reached"},
	} {
		code, stdout, stderr := runCommand(t, t.Context(), append([]string{"epoch"}, strings.Fields(test.args)...)...)
		if code != test.code || !strings.Contains(stdout+stderr, test.says) || strings.Contains(stdout+stderr, "secret") {
			t.Errorf("rshub epoch %s ended with %d, want %d and %q:\n%s%s", test.args, code, test.code, test.says, stdout, stderr)
		}
	}
}
