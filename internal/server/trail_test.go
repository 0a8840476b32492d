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

	"github.com/gorilla/websocket"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rshub/rshub/internal/testutil"
	"github.com/rshub/rshub/internal/testutil/servertest"
	"github.com/rshub/rshub/internal/testutil/tabletest"
	"github.com/rshub/rshub/internal/trail"
)

// readLines returns the lines of an audit log.
func readLines(t *testing.T, path string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

// Each action has a line with its caller and without secrets. docs/operate.md has these lines in a
// table, which -update writes.
func TestAuditLogTable(t *testing.T) {
	known, texts := tokens(t, "publish:demo,follow:demo", "publish:*,follow:*,operate")
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	h := start(t, Config{
		Callers: known, AuditLog: path, CallbackAllow: loopback,
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
	})
	const secret, query = "hub-secret-of-the-test", "query-of-the-test"
	callback := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("hub.mode") == "unsubscribe" { // refuse
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
			t.Fatalf("%s %s: got %d %s, want %d", method, url, resp.StatusCode, text, want)
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
	testutil.Until(t, "the subscription exists", func() bool {
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
	h.followMany(t, func(ws *websocket.Conn) {
		readSessionMessage(t, ws, `{"follow":"demo"}`)
	}, append(bearer(alice), "X-Forwarded-For", "6.6.6.6, 198.51.100.7", "X-Request-Id", "7f3a")...)
	do(operator, "POST", h.Ops+"/backup", "", "", 200)
	do(operator, "GET", h.Ops+"/debug/pprof/heap", "", "", 200)
	do(operator, "DELETE", h.URL+"/sets/demo", "", "", 204)
	do(alice, "POST", h.URL+"/sets/other/changes", "application/json", servertest.OneChange, 403)
	do("rshub_WRONG", "GET", h.URL+"/sets/%0A%1B%5B2J?ticket="+query, "", "", 401)
	h.wantStatus(http.StatusMisdirectedRequest, "GET", "/sets", "", "Host", "evil.example")
	h.Stop()

	lines := readLines(t, path)
	all := strings.Join(lines, "\n")
	for _, never := range append(texts, secret, query, "rshub_", "\x1b", "6.6.6.6", "/cb") {
		if strings.Contains(all, never) {
			t.Errorf("audit log contains %q, want it absent", never)
		}
	}
	meaning := map[trail.Action]string{
		trail.Publish: "publish to a set; `changes` is the number of accepted changes, `cursor` the cursor of the last one; `replayed` means that the hub had them already. The caller is `(hub)` for changes from the source of a set",
		trail.Ping:    "ping of a source (`hub.mode=publish`)", trail.Describe: "description of a set (PUT)", trail.Delete: "deletion of a set",
		trail.Subscribe: "subscription request; `callback` is the host of the callback URL", trail.Unsubscribe: "request to end a subscription",
		trail.Remove: "subscription ended by an operator", trail.Retry: "retry of a subscription by an operator", trail.Move: "subscription moved to `cursor` by an operator",
		trail.Ticket: "ticket for a set issued, or without `set` for all sets",
		trail.Follow: "end of a connection that followed many sets; `sets` is the highest number of sets at a time",
		trail.Backup: "backup of the change memory", trail.Profile: "profile of the process", trail.Request: "any other request that was refused",
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
			t.Errorf("got the line %s, want the client, the time and the caller", text)
		}
		if examples[l.Action] == "" {
			examples[l.Action] = normalize(text, callback.Listener.Addr().String())
		}
	}
	table := strings.Builder{}
	table.WriteString("| action | when | example |\n|---|---|---|\n")
	for _, action := range []trail.Action{trail.Publish, trail.Ping, trail.Describe, trail.Delete, trail.Subscribe, trail.Unsubscribe, trail.Remove, trail.Retry, trail.Move, trail.Ticket, trail.Follow, trail.Backup, trail.Profile, trail.Request} {
		if examples[action] == "" {
			t.Errorf("got no line of action %s, want one", action)
		}
		fmt.Fprintf(&table, "| `%s` | %s | `%s` |\n", action, meaning[action], examples[action])
		delete(examples, action)
	}
	if len(examples) > 0 {
		t.Errorf("actions without a row: %v", examples)
	}
	tabletest.Check(t, "../../docs/operate.md", "audit log", table.String())
}

// normalize replaces the parts of a line that differ between runs.
func normalize(text, callback string) string {
	for _, r := range [][2]string{
		{`"time":"[^"]*"`, `"time":"2026-11-22T10:15:30.123456Z"`}, {`"cursor":"(\d+)-\d+"`, `"cursor":"$1-1795342530123456"`},
		{`"subscription":"[^"]*"`, `"subscription":"4be1…"`}, {regexp.QuoteMeta(callback), "callback.example.org"},
	} {
		text = regexp.MustCompile(r[0]).ReplaceAllString(text, r[1])
	}
	return text
}

// A failed publish is logged with the number of changes accepted before. A hub that cannot write the
// audit log continues.
func TestAuditLog(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	h := start(t, Config{AuditLog: path})
	for range 2 {
		h.wantStatus(200, "POST", "/sets/demo/changes", changes(1500, 0), append(asNDJSON[:2:2], "Idempotency-Key", "k")...)
	}
	h.wantStatus(400, "POST", "/sets/demo/changes", changes(1500, 0)+"invalid\n", asNDJSON...)
	h.wantStatus(200, "GET", "/sets/demo/changes?since=start", "")
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	h.server.ReopenAuditLog()
	testutil.Until(t, "the file is created again", func() bool { _, err := os.Stat(path); return err == nil })
	h.Publish("demo")
	h.Stop()
	want := []string{`"changes":1500,`, `"replayed":true,`, `"changes":1000,`}
	lines := readLines(t, path+".1")
	if len(lines) != len(want) {
		t.Fatalf("got the lines %q, want %d", lines, len(want))
	}
	for i, want := range want {
		if !strings.Contains(lines[i], want) || strings.Contains(lines[i], `"outcome":"failed"`) != (i == 2) {
			t.Errorf("line %d = %s, want a part %s", i, lines[i], want)
		}
	}
	if lines := readLines(t, path); len(lines) != 1 || !strings.Contains(lines[0], `"changes":1,`) {
		t.Errorf("lines after the rotation = %q, want one", lines)
	}
	if _, err := os.Stat("/dev/full"); err == nil {
		full := start(t, Config{AuditLog: "/dev/full", Metrics: prometheus.NewRegistry()})
		full.Publish("demo")
		testutil.Until(t, "readyz reports the failure", func() bool {
			ready, checks := readiness(t, full)
			return ready && !checks["audit_log"].Required && strings.HasPrefix(checks["audit_log"].Reason, "write audit log: ")
		})
		if full.metric("rshub_audit_log_lost_total") != 1 {
			t.Error("got no lost line in the metrics, want 1")
		}
	}
}
