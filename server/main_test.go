package server

import (
	"cmp"
	"encoding/json"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/rshub/rshub/access"
	"github.com/rshub/rshub/internal/loggedtest"
	"github.com/rshub/rshub/internal/servertest"
	"github.com/rshub/rshub/problem"
	"github.com/rshub/rshub/resourcesync"
)

// none is an address for operations that is none.
const none = "none"

// A started is a server that a test has started.
type started struct {
	*servertest.Hub
	server *Server
	data   string
	log    *loggedtest.Log
}

// start starts a server with ports, a directory and a log of its own where c has
// none. Its log has more than the usual where a level is given.
func start(t *testing.T, c Config, level ...slog.Level) *started {
	t.Helper()
	c.Listen, c.OpsListen = cmp.Or(c.Listen, "127.0.0.1:0"), cmp.Or(c.OpsListen, "127.0.0.1:0")
	if c.OpsListen == none {
		c.OpsListen = ""
	}
	if c.Data == "" {
		c.Data = t.TempDir()
	}
	h := &started{data: c.Data, log: &loggedtest.Log{}}
	c.Logger = h.log.Logger(append(level, slog.LevelInfo)[0])
	c.Version = "v1.2.3"
	var err error
	if h.server, err = New(c); err != nil {
		t.Fatal(err)
	}
	h.Hub = servertest.Start(t, h.server, h.log)
	return h
}

// checkProblem checks that an answer is a problem of a kind, and returns its detail.
func checkProblem(t *testing.T, resp *http.Response, body string, status int, kind string) string {
	t.Helper()
	var p problem.Problem
	if err := json.Unmarshal([]byte(body), &p); err != nil || resp.Header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("the answer is no problem: %d %s", resp.StatusCode, body)
		return ""
	}
	if resp.StatusCode != status || p.Status != status || p.Type != resourcesync.Terms+"problems/"+kind || p.Detail == "" {
		t.Errorf("the problem is %d %s, want %d %s", resp.StatusCode, body, status, kind)
	}
	return p.Detail
}

// tokens returns what knows the tokens of servertest.Tokens, and the tokens.
func tokens(t *testing.T, rights ...string) (known *access.Tokens, texts []string) {
	t.Helper()
	file, texts := servertest.Tokens(rights...)
	known, err := access.ReadTokens(strings.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	return known, texts
}

// writeFile replaces a file as a whole, as editors and Kubernetes do it.
func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}
