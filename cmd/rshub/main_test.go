package main

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/rshub/rshub/internal/testutil"
	"github.com/rshub/rshub/internal/testutil/servertest"
)

// setenv sets variables, alternating names and values, and unsets all other RSHUB_ variables for
// the duration of the test.
func setenv(t *testing.T, variables ...string) {
	t.Helper()
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "RSHUB_") {
			t.Setenv(name, "") // restores the variable after the test
			if err := os.Unsetenv(name); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := 0; i < len(variables); i += 2 {
		t.Setenv(variables[i], variables[i+1])
	}
}

// A testHub is a hub that runs in the test's process.
type testHub struct {
	*servertest.Hub
	t    *testing.T
	data string
	log  *testutil.Log
}

// startHub starts a hub on unused ports, with additional variables.
func startHub(t *testing.T, variables ...string) *testHub {
	t.Helper()
	h := &testHub{t: t, data: t.TempDir(), log: &testutil.Log{}}
	setenv(t, append([]string{"RSHUB_LISTEN", "127.0.0.1:0", "RSHUB_OPS_LISTEN", "127.0.0.1:0", "RSHUB_DATA", h.data}, variables...)...)
	server, err := newHub(h.log)
	if err != nil {
		t.Fatal(err)
	}
	h.Hub = servertest.Start(t, server, h.log)
	return h
}

// writeTokens writes a tokens file with one token for each of rights. It returns the path of the
// file and the tokens.
func writeTokens(t *testing.T, rights ...string) (path string, tokens []string) {
	t.Helper()
	file, tokens := servertest.Tokens(rights...)
	path = filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	return path, tokens
}

// runCommand runs rshub with args, and returns its exit code and output.
func runCommand(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), args, &out, &errs)
	return code, out.String(), errs.String()
}

func TestHelp(t *testing.T) {
	setenv(t)
	code, text, stderr := runCommand(t, "-h")
	if code != 0 || stderr != "" {
		t.Fatalf("rshub -h = %d, %s, want 0", code, stderr)
	}
	words := " " + strings.Join(strings.Fields(text), " ") + " "
	for _, f := range reflect.VisibleFields(reflect.TypeFor[config]()) {
		name, meaning := f.Tag.Get("envconfig"), f.Tag.Get("desc")
		if !strings.HasPrefix(name, "RSHUB_") || meaning == "" {
			t.Errorf("field %s has variable %q and description %q", f.Name, name, meaning)
		}
		row := name + " "
		if value := f.Tag.Get("default"); value != "" {
			row += "(default " + value + ") "
		}
		if row += meaning; !strings.Contains(words, " "+row+" ") {
			t.Errorf("rshub -h lacks %q:\n%s", row, text)
		}
	}
	// These names must not change.
	for _, name := range []string{"LISTEN", "OPS_LISTEN", "BASE_URL", "DATA", "TOKENS_FILE", "INSECURE", "DISK_RESERVE",
		"CHANGELIST_SIZE", "RETENTION_AGE", "RETENTION_COUNT"} {
		if !strings.Contains(words, " RSHUB_"+name+" ") {
			t.Errorf("rshub -h lacks RSHUB_%s", name)
		}
	}
	for _, command := range []string{"rshub backup", "rshub token new", "rshub version", "RSHUB_TOKEN "} {
		if !strings.Contains(text, command) {
			t.Errorf("rshub -h lacks %s", command)
		}
	}
}

func TestRun(t *testing.T) {
	for _, test := range []struct {
		args           []string
		code           int
		stdout, stderr string // substrings
	}{
		{[]string{"version"}, 0, "rshub ", ""},
		{[]string{"--version"}, 0, "rshub ", ""},
		{[]string{"help"}, 0, "RSHUB_LISTEN", ""},
		{[]string{"start"}, 2, "", "unknown command start"},
		{[]string{"serve", "now"}, 2, "", "takes no arguments"},
		{[]string{"backup"}, 2, "", "rshub backup DIR"},
		{[]string{"backup", "-f"}, 2, "", "rshub backup DIR"},
		{[]string{"token"}, 2, "", "rshub token new"},
		{[]string{"token", "list"}, 2, "", "rshub token new"},
		{[]string{"serve"}, 1, "", "RSHUB_LISTEN: got \"here\""},
		{nil, 1, "", "RSHUB_LISTEN: got \"here\""},
	} {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			setenv(t, "RSHUB_LISTEN", "here")
			code, stdout, stderr := runCommand(t, test.args...)
			if code != test.code || !strings.Contains(stdout, test.stdout) || !strings.Contains(stderr, test.stderr) {
				t.Errorf("rshub %q = %d, %q, %q, want %d, %q, %q", test.args, code, stdout, stderr, test.code, test.stdout, test.stderr)
			}
			if (code == 2) != strings.Contains(stderr, "Run 'rshub -h'") {
				t.Errorf("rshub %q = %d, %q, want a reference to the help only with 2", test.args, code, stderr)
			}
		})
	}
}
