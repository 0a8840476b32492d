package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// Whatever is wrong with a form, the answer is a line of text; what is neither a
// form nor a publish is told what both are.
func TestErrorsOfForms(t *testing.T) {
	file, texts := tokens(t, "follow:*,publish:*")
	const form = "application/x-www-form-urlencoded"
	open, guarded := start(t), start(t, "RSHUB_TOKENS_FILE", file)
	for _, test := range []struct {
		h       *running
		path    string
		headers []string
		status  int
		text    bool // else a problem document
		says    string
	}{
		{open, "/hub", []string{"Content-Type", form}, 400, true, "hub.mode"},
		{open, "/hub", []string{"Content-Type", form + "; charset"}, 400, true, "hub.mode"},
		{open, "/subscribe", []string{"Content-Type", form + "; charset=utf-8"}, 400, true, "hub.mode"},
		{open, "/hub", []string{"Content-Type", "multipart/form-data; boundary=x"}, 415, true, form},
		{open, "/subscribe", []string{"Content-Type", "text/plain"}, 415, true, "application/x-ndjson"},
		{open, "/hub", nil, 415, true, form},
		{open, "/hub", []string{"Content-Type", "application/json"}, 400, false, "Link"},
		{open, "/hub", []string{"Content-Type", "text/plain", "Link", "<x>"}, 400, false, "Link"},
		{open, "/hub", []string{"Content-Type", form, "Origin", "https://evil.example"}, 403, true, "evil.example"},
		{open, "/hub", []string{"Content-Type", form, "Host", "evil.example"}, 421, true, "evil.example"},
		{guarded, "/hub", []string{"Content-Type", form, "Authorization", "Bearer rshub_WRONG"}, 401, true, "token"},
		{guarded, "/hub", []string{"Content-Type", "application/xml", "Authorization", "Bearer rshub_WRONG"}, 401, false, "token"},
		{guarded, "/sets/demo/changes", []string{"Content-Type", form, "Authorization", "Bearer rshub_WRONG"}, 401, false, "token"},
		{guarded, "/hub", []string{"Content-Type", form, "Authorization", "Bearer " + texts[0]}, 400, true, "hub.mode"},
	} {
		resp, body := do(t, "POST", test.h.url+test.path, "", test.headers...)
		want := "application/problem+json"
		if test.text {
			want = "text/plain; charset=utf-8"
		}
		if resp.StatusCode != test.status || resp.Header.Get("Content-Type") != want || !strings.Contains(body, test.says) || strings.Count(body, "\n") != 1 {
			t.Errorf("%s with %q is answered %d %s: %s", test.path, test.headers, resp.StatusCode, resp.Header.Get("Content-Type"), body)
		}
		if got := resp.Header.Get("WWW-Authenticate") != ""; got != (test.status == http.StatusUnauthorized) {
			t.Errorf("%s with %q has WWW-Authenticate: %t", test.path, test.headers, got)
		}
	}
}

// What a callback sends unasked is in the hub's log as everything else is: as
// JSON, and for who wants every detail.
func TestUnaskedAnswer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := start(t, "RSHUB_CALLBACK_ALLOW", "127.0.0.0/8", "RSHUB_LOG_LEVEL", "debug")
	h.publish("demo")
	closed := make(chan error, 1)
	go func() { closed <- chatty(l) }()
	form := url.Values{"hub.mode": {"subscribe"}, "hub.topic": {h.url + "/sets/demo/changes"}, "hub.callback": {"http://" + l.Addr().String() + "/cb"}}
	if resp, body := do(t, "POST", h.url+"/hub", form.Encode(), "Content-Type", "application/x-www-form-urlencoded"); resp.StatusCode != http.StatusAccepted {
		t.Fatalf("it is answered %d %s", resp.StatusCode, body)
	}
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	h.stop()
	said := false
	for line := range strings.Lines(h.log.String()) {
		var entry struct{ Level, Msg string }
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Errorf("a line is no JSON: %s", line)
		}
		said = said || entry.Level == "DEBUG" && strings.Contains(entry.Msg, "out of turn")
	}
	if !said {
		t.Errorf("the log says nothing of it:\n%s", h.log)
	}
}

// chatty confirms one subscription, says more than it was asked for, and returns
// when the hub has closed the connection.
func chatty(l net.Listener) error {
	defer l.Close()
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
	challenge := r.URL.Query().Get("hub.challenge")
	if _, err := fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%sHTTP/1.1 200 out of turn\r\n\r\n", len(challenge), challenge); err != nil {
		return err
	}
	if _, err := in.ReadByte(); err == nil {
		return fmt.Errorf("another request came")
	}
	return nil
}
