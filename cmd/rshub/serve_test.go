package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rshub/rshub/internal/build"
	"github.com/rshub/rshub/internal/testutil/redistest"
	"github.com/rshub/rshub/internal/testutil/servertest"
)

// TestServe checks that the hub is configured by the environment. The tests of package server
// check the hub itself.
func TestServe(t *testing.T) {
	h := startHub(t, "RSHUB_OPS_LISTEN", "")
	first, _, _ := strings.Cut(h.log.String(), "\n")
	var line map[string]string
	if err := json.Unmarshal([]byte(first), &line); err != nil {
		t.Fatal(err)
	}
	if line["msg"] != "rshub is running" || line["ops"] != "none" || line["memory"] != h.data || line["version"] != build.Version() {
		t.Errorf("first log line = %s, want the configuration", first)
	}
	h.Publish("demo")
	h.Stop()
}

func TestServeRefuses(t *testing.T) {
	occupied, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer occupied.Close()
	file := filepath.Join(t.TempDir(), "file")
	writeFile(t, file, "alice\n")
	redis, silent := "redis://"+redistest.Start(t).Addr, "redis://"+occupied.Addr().String() // the kernel accepts its connections
	for _, test := range []struct {
		name      string
		variables []string
		want      string
	}{
		{"configuration", []string{"RSHUB_GRACE", "soon"}, "RSHUB_GRACE: invalid value \"soon\""},
		{"nonexistent tokens file", []string{"RSHUB_TOKENS_FILE", file + "x"}, "no such file"},
		{"invalid tokens file", []string{"RSHUB_TOKENS_FILE", file}, "line 1"},
		{"address in use", []string{"RSHUB_LISTEN", occupied.Addr().String()}, "RSHUB_LISTEN: "},
		{"operations address in use", []string{"RSHUB_OPS_LISTEN", occupied.Addr().String()}, "RSHUB_OPS_LISTEN: "},
		{"unresponsive Redis", []string{"RSHUB_REDIS_URL", silent, "RSHUB_BASE_URL", "http://127.0.0.1:1", "RSHUB_START_TIMEOUT", "200ms"}, "RSHUB_REDIS_URL: waited for 200ms (RSHUB_START_TIMEOUT): "},
		{"wrong password", []string{"RSHUB_REDIS_URL", strings.Replace(redis, "//", "//nobody:SECRET@", 1), "RSHUB_BASE_URL", "http://127.0.0.1:1", "RSHUB_START_TIMEOUT", "1h"}, "WRONGPASS"},
		{"invalid NATS port", []string{"RSHUB_REDIS_URL", redis, "RSHUB_BASE_URL", "http://127.0.0.1:1", "RSHUB_NATS_URL", "nats://me:SECRET@127.0.0.1:port"}, "rshub: "},
		{"invalid NATS URL", []string{"RSHUB_REDIS_URL", redis, "RSHUB_BASE_URL", "http://127.0.0.1:1", "RSHUB_NATS_URL", "nats://me:SECRET%zz@127.0.0.1:4222"}, "rshub: "},
		{"data directory is a file", []string{"RSHUB_DATA", file}, "data directory"},
	} {
		t.Run(test.name, func(t *testing.T) {
			setenv(t, append([]string{"RSHUB_LISTEN", "127.0.0.1:0", "RSHUB_OPS_LISTEN", "127.0.0.1:0", "RSHUB_DATA", t.TempDir()}, test.variables...)...)
			code, _, stderr := runCommand(t)
			if code != 1 || !strings.Contains(stderr, test.want) || strings.Contains(stderr, "SECRET") {
				t.Errorf("rshub = %d, %s, want 1, %s", code, stderr, test.want)
			}
		})
	}
	t.Run("two hubs", func(t *testing.T) {
		h := startHub(t)
		code, _, stderr := runCommand(t) // in the same environment
		if code != 1 || !strings.Contains(stderr, h.data) || !strings.Contains(stderr, "in use") {
			t.Errorf("second rshub = %d, %s, want 1, and that %s is in use", code, stderr, h.data)
		}
	})
}

// TestUnsolicitedResponseIsLogged checks that what net/http logs about an unsolicited response of
// a callback is in the hub's log as JSON, at level debug.
func TestUnsolicitedResponseIsLogged(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := startHub(t, "RSHUB_CALLBACK_ALLOW", "127.0.0.0/8", "RSHUB_LOG_LEVEL", "debug")
	h.Publish("demo")
	closed := make(chan error, 1)
	go func() { closed <- serveUnsolicited(l) }()
	form := url.Values{"hub.mode": {"subscribe"}, "hub.topic": {h.URL + "/sets/demo/changes"}, "hub.callback": {"http://" + l.Addr().String() + "/cb"}, "rs.since": {"start"}}
	if resp, body := servertest.Do(t, "POST", h.URL+"/hub", form.Encode(), "Content-Type", "application/x-www-form-urlencoded"); resp.StatusCode != http.StatusAccepted {
		t.Fatalf("subscribe = %d %s, want 202", resp.StatusCode, body)
	}
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	h.Stop()
	logged := false
	for line := range strings.Lines(h.log.String()) {
		var entry struct{ Level, Msg string }
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Errorf("log line is not JSON: %s", line)
		}
		logged = logged || entry.Level == "DEBUG" && strings.Contains(entry.Msg, "out of turn")
	}
	if !logged {
		t.Errorf("log lacks the unsolicited response:\n%s", h.log)
	}
}

// serveUnsolicited confirms one subscription, and responds to the first delivery with an
// additional unsolicited response. It returns after the hub has closed the connection.
func serveUnsolicited(l net.Listener) error {
	defer l.Close()
	answer := func(body func(*http.Request) string, more string) error {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		defer c.Close()
		in := bufio.NewReader(c)
		r, err := http.ReadRequest(in)
		if err != nil {
			return err
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return err
		}
		text := body(r)
		if _, err := fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s%s", len(text), text, more); err != nil {
			return err
		}
		if _, err := in.ReadByte(); err == nil {
			return fmt.Errorf("received another request, want a closed connection")
		}
		return nil
	}
	if err := answer(func(r *http.Request) string { return r.URL.Query().Get("hub.challenge") }, ""); err != nil {
		return err
	}
	return answer(func(*http.Request) string { return "" }, "HTTP/1.1 200 out of turn\r\n\r\n")
}
