package main

import (
	"strings"
	"testing"

	"github.com/rshub/rshub/internal/servertest"
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

func TestEpoch(t *testing.T) {
	h := start(t)
	publishOne(t, h.URL)
	index := func(url string) string {
		_, text := servertest.Do(t, "GET", url+"/sets/demo/changelist-index.xml", "")
		_, text, _ = strings.Cut(text, "/sets/demo/changelist-")
		name, _, _ := strings.Cut(text, "</loc>")
		return name
	}
	before := index(h.URL)
	if code, _, stderr := runCommand(t, t.Context(), "epoch", h.data); code != 1 || !strings.Contains(stderr, "stop the hub") {
		t.Errorf("on a memory in use it ended with %d: %s", code, stderr)
	}
	h.Stop()
	if code, stdout, stderr := runCommand(t, t.Context(), "epoch", h.data); code != 0 || !strings.Contains(stdout, "of 1 set have new names") {
		t.Errorf("it ended with %d: %s%s", code, stdout, stderr)
	}
	again := start(t, "RSHUB_DATA", h.data)
	if name := index(again.URL); name == before || !strings.Contains(name, ".") {
		t.Errorf("the open list is %s, it was %s", name, before)
	}
}
