package clients

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// followEvery returns the command of examples/follow/every.mjs.
func followEvery(t *testing.T) []string {
	t.Helper()
	program := []string{node(t)}
	if out, err := exec.Command(program[0], "-p", "typeof WebSocket").Output(); err != nil || strings.TrimSpace(string(out)) == "undefined" {
		program = append(program, "--experimental-websocket")
		if err := exec.Command(program[0], program[1], "-e", "new WebSocket('ws://127.0.0.1:1')").Run(); err != nil {
			t.Skipf("this Node has no WebSocket: %v", err)
		}
	}
	return append(program, root(t, "examples", "follow", "every.mjs"))
}

// positionsBySet returns the positions of the changes that a program printed, one per line with its set.
func positionsBySet(t *testing.T, p *hubtest.Process) map[string][]uint64 {
	t.Helper()
	all := map[string][]uint64{}
	for line := range bytes.Lines([]byte(p.Stdout.String())) {
		var c struct {
			Set, Loc string
			Position uint64
		}
		if line[len(line)-1] != '\n' {
			break // incomplete
		}
		if err := json.Unmarshal(line, &c); err != nil || c.Set == "" || c.Loc == "" {
			t.Fatalf("got line %s, %v, want a change with its set", line, err)
		}
		all[c.Set] = append(all[c.Set], c.Position)
	}
	return all
}

// TestNodeFollowsEverySet runs examples/follow/every.mjs while it and the hub are killed. It prints every
// change of every set, and repeats only changes whose cursors were not stored before a kill.
func TestNodeFollowsEverySet(t *testing.T) {
	t.Parallel()
	program := followEvery(t)
	h := hubtest.StartHub(t)
	cursors := filepath.Join(t.TempDir(), "cursors")
	follow := func() *hubtest.Process {
		return hubtest.Start(t, nil, nil, program[0], append(program[1:len(program):len(program)], h.URL, cursors)...)
	}
	last := map[string]uint64{} // last positions of earlier processes
	upTo := func(p *hubtest.Process, want map[string]uint64) {
		t.Helper()
		var got map[string][]uint64
		hubtest.Until(t, fmt.Sprintf("the script has printed %v", want), func() error {
			got = positionsBySet(t, p)
			for set, n := range want {
				if all := got[set]; len(all) == 0 || all[len(all)-1] < n {
					return fmt.Errorf("set %s: got %d; stderr: %s", set, len(all), p.Stderr.String())
				}
			}
			return nil
		})
		for set, all := range got {
			if all[0] > last[set]+1 {
				t.Errorf("set %s: first position after a restart = %d, want at most %d", set, all[0], last[set]+1)
			}
			for i, position := range all {
				if position != all[0]+uint64(i) {
					t.Fatalf("set %s: got position %d after %d", set, position, all[i-1])
				}
			}
		}
	}
	stored := func(set, prefix string) {
		t.Helper()
		hubtest.Until(t, "the cursor is stored", func() error {
			var all map[string]string
			text, err := os.ReadFile(cursors)
			if err == nil {
				err = json.Unmarshal(text, &all)
			}
			if err == nil && !strings.HasPrefix(all[set], prefix) {
				err = fmt.Errorf("got %s", text)
			}
			return err
		})
	}
	hubtest.Publish(t, h, "a", hubtest.Changes("first", 700))
	p := follow()
	hubtest.Publish(t, h, "b", hubtest.Changes("first", 5))
	upTo(p, map[string]uint64{"a": 700, "b": 5})
	h.Kill()
	h.Start(t)
	hubtest.Publish(t, h, "a", hubtest.Changes("second", 300))
	hubtest.Publish(t, h, "c", hubtest.Changes("second", 3))
	upTo(p, map[string]uint64{"a": 1000, "c": 3})
	stored("a", "1000-")
	stored("c", "3-")
	p.Kill()

	last = map[string]uint64{"a": 1000, "b": 5, "c": 3}
	hubtest.Publish(t, h, "a", hubtest.Changes("third", 10))
	hubtest.Publish(t, h, "d", hubtest.Changes("third", 2)) // created in the meantime
	p = follow()
	upTo(p, map[string]uint64{"a": 1010, "d": 2})
	if first := positionsBySet(t, p)["a"][0]; first != 1001 {
		t.Errorf("first position after a restart = %d, want 1001", first)
	}
	stored("d", "2-")

	hubtest.Must(t, http.StatusNoContent, http.MethodDelete, h.URL+"/sets/b", nil)
	hubtest.Until(t, "the deletion is reported", func() error {
		if !strings.Contains(p.Stderr.String(), "set b is not followed: 404") {
			return errors.New(p.Stderr.String())
		}
		return nil
	})
	before := len(positionsBySet(t, p)["b"])
	hubtest.Publish(t, h, "b", hubtest.Changes("again", 1))
	hubtest.Until(t, "the set is followed again", func() error {
		if got := positionsBySet(t, p)["b"]; len(got) != before+1 {
			return fmt.Errorf("got %d", got)
		}
		return nil
	})
}

// TestNodeTicket runs examples/follow/every.mjs at a hub with tokens: it exchanges its token for a ticket.
func TestNodeTicket(t *testing.T) {
	t.Parallel()
	program := followEvery(t)
	h, tokens := hubtest.NewHub(t), filepath.Join(t.TempDir(), "tokens")
	h.Env = append(h.Env, "RSHUB_TOKENS_FILE="+tokens)
	token := hubtest.NewToken(t, tokens, "all", "publish:*,follow:*")
	h.Start(t)
	hubtest.Must(t, http.StatusOK, http.MethodPut, h.URL+"/sets/a", []byte(`{"private":true}`), "Authorization: Bearer "+token)
	hubtest.Must(t, http.StatusOK, http.MethodPost, h.Topic("a"), []byte(`{"changes":[{"loc":"https://example.org/a","change":"updated"}]}`),
		"Content-Type: application/json", "Authorization: Bearer "+token)
	start := func(token string) *hubtest.Process {
		return hubtest.Start(t, []string{"RSHUB_TOKEN=" + token}, nil, program[0], append(program[1:len(program):len(program)], h.URL, filepath.Join(t.TempDir(), "cursors"))...)
	}
	p := start(token)
	hubtest.Until(t, "the change arrives", func() error {
		if got := positionsBySet(t, p)["a"]; len(got) != 1 {
			return errors.New(p.Stderr.String())
		}
		return nil
	})
	p = start("wrong")
	if code := p.Wait(); code != 2 {
		t.Errorf("exit status with a wrong token = %d, want 2: %s", code, p.Stderr.String())
	}
}
