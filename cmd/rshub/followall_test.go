package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rshub/rshub/internal/testutil"
	"github.com/rshub/rshub/internal/testutil/servertest"
)

// nextSetLoc waits for the next line, and returns its set and its loc.
func (r *followRun) nextSetLoc() string {
	r.t.Helper()
	loc := r.nextLoc()
	var line struct{ Set string }
	if err := json.Unmarshal(r.lines.Bytes(), &line); err != nil || !strings.HasPrefix(r.lines.Text(), `{"set":"`+line.Set+`","position":`) {
		r.t.Fatalf("line %s does not start with its set and position: %v", r.lines.Text(), err)
	}
	return line.Set + " " + loc
}

// nextSetLocs returns the next n lines as nextSetLoc does, sorted.
func (r *followRun) nextSetLocs(n int) (all []string) {
	r.t.Helper()
	for range n {
		all = append(all, r.nextSetLoc())
	}
	slices.Sort(all)
	return all
}

// TestFollowSets checks that follow prints the changes of several sets on one connection, and how to
// resume, and that the advice works.
func TestFollowSets(t *testing.T) {
	h := startHub(t)
	h.publishLocs("a", "urn:1", "urn:x:2", "urn:x:3")
	h.publishLocs("b", "urn:x:1", "urn:2")
	r := startFollow(t, "-hub", h.URL, "-set", "a", "-set", "b", "-since", "start", "-prefix", "urn:x:", "-count", "3")
	if got, want := r.nextSetLocs(3), []string{"a urn:x:2", "a urn:x:3", "b urn:x:1"}; !slices.Equal(got, want) {
		t.Errorf("follow prints %q, want %q", got, want)
	}
	code, _ := r.wait()
	_, advice, _ := strings.Cut(r.errs.String(), "rshub: to resume, use -cursors FILE with these lines in FILE:\n")
	if code != 0 || strings.Count(advice, "\n") != 2 || !strings.HasPrefix(advice, "a 3-") || !strings.Contains(advice, "\nb 2-") {
		t.Fatalf("wait() = %d with %q, want 0 and a cursor of each set", code, r.errs.String())
	}

	h.publishLocs("a", "urn:4")
	path := filepath.Join(t.TempDir(), "cursors")
	if err := os.WriteFile(path, []byte(advice), 0o600); err != nil {
		t.Fatal(err)
	}
	r = startFollow(t, "-hub", h.URL, "-set", "a", "-set", "b", "-cursors", path)
	h.publishLocs("b", "urn:3")
	if got, want := r.nextSetLocs(2), []string{"a urn:4", "b urn:3"}; !slices.Equal(got, want) {
		t.Errorf("follow prints %q, want %q", got, want)
	}
	r.stop()
	if code, advice := r.wait(); code != 0 || advice != "" {
		t.Errorf("wait() = %d, %q, want 0 and no advice", code, advice)
	}
}

// TestFollowAll checks that follow -all resumes from its file, even if -count stopped it within a
// publish, and finds sets that were created in the meantime.
func TestFollowAll(t *testing.T) {
	h := startHub(t)
	h.publishLocs("a", "urn:1", "urn:2", "urn:3")
	args := []string{"-hub", h.URL, "-all", "-cursors", filepath.Join(t.TempDir(), "cursors")}
	r := startFollow(t, append(args, "-since", "start", "-count", "2")...)
	if got, want := r.nextSetLocs(2), []string{"a urn:1", "a urn:2"}; !slices.Equal(got, want) {
		t.Errorf("follow prints %q, want %q", got, want)
	}
	if code, _ := r.wait(); code != 0 || r.errs.String() != "" {
		t.Errorf("wait() = %d with %q, want 0", code, r.errs.String())
	}
	h.publishLocs("b", "urn:1")
	r = startFollow(t, append(args, "-count", "2")...)
	if got, want := r.nextSetLocs(2), []string{"a urn:3", "b urn:1"}; !slices.Equal(got, want) {
		t.Errorf("follow prints %q, want %q", got, want)
	}
	if code, _ := r.wait(); code != 0 {
		t.Errorf("wait() = %d, want 0: %s", code, &r.errs)
	}
	r = startFollow(t, "-hub", h.URL, "-set", "a", "-cursors", args[len(args)-1]) // one set by long polls
	h.publishLocs("a", "urn:4")
	if got := r.nextLoc(); got != "urn:4" {
		t.Errorf("nextLoc() = %s, want urn:4", got)
	}
	r.stop()
	if code, advice := r.wait(); code != 0 || advice != "" {
		t.Errorf("wait() = %d, %q, want 0 and no advice", code, advice)
	}
}

// TestFollowManySets checks that the advice for resuming is bounded.
func TestFollowManySets(t *testing.T) {
	h := startHub(t)
	for i := range maxResume + 1 {
		h.publishLocs(fmt.Sprint("s", i), "urn:1")
	}
	r := startFollow(t, "-hub", h.URL, "-all", "-since", "start", "-count", fmt.Sprint(maxResume+1))
	r.nextSetLocs(maxResume + 1)
	if code, _ := r.wait(); code != 0 || r.errs.String() != "rshub: followed 21 sets; to resume later, use -cursors FILE from the start\n" {
		t.Errorf("wait() = %d with %q, want 0 and the advice", code, r.errs.String())
	}
}

// TestFollowSetErrors checks that an error of a set does not end the others, and that follow fails when
// no set is left.
func TestFollowSetErrors(t *testing.T) {
	h := startHub(t)
	path := filepath.Join(t.TempDir(), "cursors")
	if err := os.WriteFile(path, []byte("b 7-7\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h.publishLocs("a", "urn:1")
	r := startFollow(t, "-hub", h.URL, "-set", "a", "-set", "b", "-since", "start", "-cursors", path)
	if got := r.nextSetLoc(); got != "a urn:1" {
		t.Errorf("follow prints %q, want a urn:1", got)
	}
	testutil.Until(t, "an error of set b", func() bool {
		return strings.Contains(r.errs.String(), "rshub: set b: hub returned 404: no such set")
	})
	if resp, body := servertest.Do(t, "DELETE", h.URL+"/sets/a", ""); resp.StatusCode >= 300 {
		t.Fatalf("DELETE = %d %s, want 2xx", resp.StatusCode, body)
	}
	if code, _ := r.wait(); code != 1 || !strings.Contains(r.errs.String(), "no set is left to follow") {
		t.Errorf("wait() = %d with %q, want 1", code, r.errs.String())
	}
}

func TestFollowAllRefused(t *testing.T) {
	path, texts := writeTokens(t, "follow:*")
	h := startHub(t, "RSHUB_TOKENS_FILE", path)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("hello\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, token string
		args        []string
		code        int
		want        string
	}{
		{"all and a set", "", []string{"-all", "-set", "a"}, 2, "want sets or -all"},
		{"cursor for several sets", "", []string{"-all", "-since", "7-7"}, 2, "use -cursors to resume several sets"},
		{"invalid since", "", []string{"-all", "-since", "yesterday"}, 1, "want now, start or a datetime"},
		{"baseline", "", []string{"-set", "a", "-set", "b", "-since", "baseline"}, 1, "cannot start with a baseline"},
		{"other file", "", []string{"-all", "-cursors", file}, 1, `line 1: got "hello"`},
		{"too few changes", texts[0], []string{"-all", "-count", "1", "-for", "50ms"}, 1, "received 0 changes within 50ms, want 1"},
		{"time limit", texts[0], []string{"-set", "a", "-set", "b", "-for", "50ms"}, 0, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			setenv(t, "RSHUB_TOKEN", tt.token)
			code, stdout, stderr := runCommand(t, append([]string{"follow", "-hub", h.URL}, tt.args...)...)
			if code != tt.code || !strings.Contains(stderr, tt.want) || stdout != "" {
				t.Errorf("rshub follow = %d, %q, %q, want %d, %q", code, stdout, stderr, tt.code, tt.want)
			}
		})
	}
	setenv(t, "RSHUB_TOKEN", "wrong")
	if code, _, stderr := runCommand(t, "follow", "-hub", h.URL, "-all"); code != 1 || !strings.Contains(stderr, "hub returned 401") {
		t.Errorf("rshub follow with a wrong token = %d, %q, want 1, 401", code, stderr)
	}
}
