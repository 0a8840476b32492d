package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rshub/rshub/internal/testutil"
	"github.com/rshub/rshub/internal/testutil/servertest"
	"github.com/rshub/rshub/internal/testutil/tabletest"
	"github.com/rshub/rshub/internal/trail"
)

// audited returns the lines of an audit log.
func audited(t *testing.T, path string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

// Each action has a line, with who did it and nothing that is secret. docs/operate.md has
// these lines. With -update the table there is written.
func TestAuditLogTable(t *testing.T) {
	known, texts := tokens(t, "publish:demo,follow:demo", "publish:*,follow:*,operate")
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	h := start(t, Config{
		Callers: known, AuditLog: path, CallbackAllow: loopback,
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
	})
	const secret, query = "hub-secret-of-the-test", "query-of-the-test"
	callback := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("hub.mode") == "unsubscribe" { // it does not confirm that
			http.NotFound(w, r)
			return
		}
		fmt.Fprint(w, r.URL.Query().Get("hub.challenge"))
	}))
	defer callback.Close()
	topic := h.URL + "/sets/demo/changes"
	do := func(token, method, url, contentType, body string, want int) string {
		t.Helper()
		headers := append(bearer(token), "X-Forwarded-For", "6.6.6.6, 198.51.100.7", "Content-Type", contentType, "X-Request-Id", "7f3a")
		resp, text := servertest.Do(t, method, url, body, headers...)
		if resp.StatusCode != want {
			t.Fatalf("%s %s: %d %s", method, url, resp.StatusCode, text)
		}
		return text
	}
	form := func(mode string) string {
		return url.Values{"hub.mode": {mode}, "hub.topic": {topic}, "hub.callback": {callback.URL + "/cb?" + query}, "hub.secret": {secret}}.Encode()
	}
	const forms = "application/x-www-form-urlencoded"
	alice, operator := texts[0], texts[1]
	do(operator, "PUT", h.URL+"/sets/demo", "application/json", "{}", 200)
	do(alice, "POST", topic, "application/json", servertest.OneChange, 200)
	do(alice, "POST", h.URL+"/hub", forms, form("subscribe"), 202)
	var list struct{ Subscriptions []struct{ ID string } }
	testutil.Until(t, "the subscription is there", func() bool {
		if err := json.Unmarshal([]byte(do(operator, "GET", h.URL+"/sets/demo/subscriptions", "", "", 200)), &list); err != nil {
			t.Fatal(err)
		}
		return len(list.Subscriptions) == 1
	})
	one := h.URL + "/sets/demo/subscriptions/" + list.Subscriptions[0].ID
	do(operator, "PUT", one+"/cursor", "application/json", `{"cursor":"start"}`, 202)
	do(operator, "POST", one+"/retry", "", "", 202)
	do(alice, "POST", h.URL+"/hub", forms, form("unsubscribe"), 202)
	do(operator, "DELETE", one, "", "", 202)
	do(alice, "POST", h.URL+"/hub", forms, url.Values{"hub.mode": {"publish"}, "hub.topic": {topic}}.Encode(), 400) // the set has no source
	do(operator, "POST", h.URL+"/sets/demo/ticket", "", "", 200)
	do(operator, "POST", h.Ops+"/backup", "", "", 200)
	do(operator, "GET", h.Ops+"/debug/pprof/heap", "", "", 200)
	do(operator, "DELETE", h.URL+"/sets/demo", "", "", 204)
	do(alice, "POST", h.URL+"/sets/other/changes", "application/json", servertest.OneChange, 403)
	do("rshub_WRONG", "GET", h.URL+"/sets/%0A%1B%5B2J?ticket="+query, "", "", 401)
	h.wants(http.StatusMisdirectedRequest, "GET", "/sets", "", "Host", "evil.example")
	h.Stop()

	lines := audited(t, path)
	all := strings.Join(lines, "\n")
	for _, never := range append(texts, secret, query, "rshub_", "\x1b", "6.6.6.6", "/cb") {
		if strings.Contains(all, never) {
			t.Errorf("the audit log has %q", never)
		}
	}
	meaning := map[trail.Action]string{
		trail.Publish: "changes were published to a set; `changes` of them were accepted, the last with `cursor`. `replayed`: the hub had them already. The hub's own publishes for the source of a set have the caller `(hub)`",
		trail.Ping:    "a source asked that its Change List be read (`hub.mode=publish`)", trail.Describe: "a set was described (PUT)", trail.Delete: "a set was deleted",
		trail.Subscribe: "a callback was to get the changes of a set; of its URL there is the host", trail.Unsubscribe: "it was to get none any more",
		trail.Remove: "an operator ended a subscription", trail.Retry: "an operator had a subscription delivered", trail.Move: "an operator moved a subscription to `cursor`",
		trail.Ticket: "a ticket for a set was given",
		trail.Backup: "the change memory was read", trail.Profile: "a profile was read", trail.Request: "anything else, where it was refused",
	}
	examples := map[trail.Action]string{}
	for _, text := range lines {
		var l struct {
			Action          trail.Action
			Caller, Client  string
			Outcome, Time   string
			RequestID       string
			Status, Changes int
		}
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if l.RequestID == "7f3a" && (l.Client != "198.51.100.7" || l.Time == "") || (l.Caller == "") != (l.Action == trail.Request) {
			t.Errorf("%s", text)
		}
		if examples[l.Action] == "" {
			examples[l.Action] = fixed(text, callback.Listener.Addr().String())
		}
	}
	table := strings.Builder{}
	table.WriteString("| action | when | example |\n|---|---|---|\n")
	for _, action := range []trail.Action{trail.Publish, trail.Ping, trail.Describe, trail.Delete, trail.Subscribe, trail.Unsubscribe, trail.Remove, trail.Retry, trail.Move, trail.Ticket, trail.Backup, trail.Profile, trail.Request} {
		if examples[action] == "" {
			t.Errorf("nothing has the action %s", action)
		}
		fmt.Fprintf(&table, "| `%s` | %s | `%s` |\n", action, meaning[action], examples[action])
		delete(examples, action)
	}
	if len(examples) > 0 {
		t.Errorf("the table lacks %v", examples)
	}
	tabletest.Check(t, "../../docs/operate.md", "audit log", table.String())
}

// fixed returns a line in which all is replaced that each run has otherwise.
func fixed(text, callback string) string {
	for _, r := range [][2]string{
		{`"time":"[^"]*"`, `"time":"2026-11-22T10:15:30.123456Z"`}, {`"cursor":"(\d+)-\d+"`, `"cursor":"$1-1795342530123456"`},
		{`"subscription":"[^"]*"`, `"subscription":"4be1…"`}, {regexp.QuoteMeta(callback), "callback.example.org"},
	} {
		text = regexp.MustCompile(r[0]).ReplaceAllString(text, r[1])
	}
	return text
}

// What fails says so, and how many changes of a stream were accepted all the same; a hub
// that cannot write the audit log goes on.
func TestAuditLog(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	h := start(t, Config{AuditLog: path})
	for range 2 {
		h.wants(200, "POST", "/sets/demo/changes", changes(1500, 0), append(asNDJSON[:2:2], "Idempotency-Key", "k")...)
	}
	h.wants(400, "POST", "/sets/demo/changes", changes(1500, 0)+"no change\n", asNDJSON...)
	h.wants(200, "GET", "/sets/demo/changes?since=start", "")
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	h.server.ReopenAuditLog()
	testutil.Until(t, "the file is made anew", func() bool { _, err := os.Stat(path); return err == nil })
	h.Publish("demo")
	h.Stop()
	want := []string{`"changes":1500,`, `"replayed":true,`, `"changes":1000,`}
	lines := audited(t, path+".1")
	if len(lines) != len(want) {
		t.Fatalf("%q", lines)
	}
	for i, want := range want {
		if !strings.Contains(lines[i], want) || strings.Contains(lines[i], `"outcome":"failed"`) != (i == 2) {
			t.Errorf("%s, want %s", lines[i], want)
		}
	}
	if lines := audited(t, path); len(lines) != 1 || !strings.Contains(lines[0], `"changes":1,`) {
		t.Errorf("after it was renamed: %q", lines)
	}
	if _, err := os.Stat("/dev/full"); err == nil {
		full := start(t, Config{AuditLog: "/dev/full", Metrics: prometheus.NewRegistry()})
		full.Publish("demo")
		testutil.Until(t, "the failure is seen", func() bool {
			ready, checks := readiness(t, full)
			return ready && !checks["audit_log"].Required && strings.HasPrefix(checks["audit_log"].Reason, "write the audit log: ")
		})
		if full.value("rshub_audit_log_lost_total") != 1 {
			t.Error("metrics do not say that a line is missing")
		}
	}
}
