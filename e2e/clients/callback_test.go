package clients

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/e2e/internal/trial"
)

// A vector is a test vector for signatures, shared with callback/websub.
type vector struct {
	Name, Secret, Body string
	Signatures         map[string]string
}

func vectors(t *testing.T) (all []vector) {
	t.Helper()
	text, err := os.ReadFile(root(t, "callback", "websub", "testdata", "signature.json"))
	if err != nil {
		t.Fatal(err)
	}
	hubtest.Decode(t, text, &all)
	return all
}

// A receiver is one of the programs in examples/callback.
type receiver struct {
	*hubtest.Process
	addr, url, spool string
	topic, secret    string
	command          []string
}

// start starts the receiver, possibly again.
func (r *receiver) start(t *testing.T) {
	t.Helper()
	args := append(slices.Clone(r.command[1:]), r.addr, r.topic, r.spool)
	r.Process = hubtest.Start(t, append(withClient(t), "CALLBACK_SECRET="+r.secret), nil, r.command[0], args...)
	hubtest.Until(t, "the receiver listens", func() error {
		if !strings.Contains(r.Stdout.String(), "callback http://") {
			return errors.New(r.Stderr.String())
		}
		return nil
	})
}

// A spoolLine is a delivery as the receiver stores it.
type spoolLine struct {
	Mark    string // POSITION/NUMBER, or POSITION without a number
	Missed  bool
	Changes []struct {
		Position uint64
		Loc      string
		Change   string
		Datetime string
	}
}

// position returns the position of the mark, or 0 without one.
func (l spoolLine) position() uint64 {
	at, _, _ := strings.Cut(l.Mark, "/")
	n, _ := strconv.ParseUint(at, 10, 64)
	return n
}

func (r *receiver) lines(t *testing.T) (all []spoolLine) {
	t.Helper()
	text, err := os.ReadFile(r.spool)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		var l spoolLine
		if json.Unmarshal(line, &l) == nil { // otherwise incomplete
			all = append(all, l)
		}
	}
	return all
}

// waitChanges waits until the receiver has the changes up to position n, once and in order.
func (r *receiver) waitChanges(t *testing.T, n int) {
	t.Helper()
	hubtest.Until(t, fmt.Sprintf("the receiver has %d changes", n), func() error {
		next := uint64(1)
		for _, l := range r.lines(t) {
			for _, c := range l.Changes {
				if c.Position != next || c.Loc == "" || c.Change == "" || c.Datetime == "" {
					t.Fatalf("got change %+v, want position %d", c, next)
				}
				next++
			}
			if l.position() != next-1 || l.Missed {
				t.Fatalf("got mark %q, missed %t, want position %d without gaps", l.Mark, l.Missed, next-1)
			}
		}
		if int(next)-1 != n {
			return fmt.Errorf("got %d", next-1)
		}
		return nil
	})
}

// post sends a delivery as a hub does, and returns the status.
func (r *receiver) post(t *testing.T, body, signature string, headers ...string) int {
	t.Helper()
	if signature != "" {
		headers = append(headers, "X-Hub-Signature: "+signature)
	}
	a, err := hubtest.Request(http.MethodPost, r.url, strings.NewReader(body), headers...)
	if err != nil {
		t.Fatal(err)
	}
	return a.Status
}

// receivers are the commands of the receivers by language.
var receivers = map[string]func(*testing.T) []string{
	"python": func(t *testing.T) []string {
		return []string{python(t), root(t, "examples", "callback", "receiver.py")}
	},
	"node": func(t *testing.T) []string { return []string{node(t), root(t, "examples", "callback", "receiver.mjs")} },
	"go": func(t *testing.T) []string {
		program := filepath.Join(t.TempDir(), "receiver")
		build := exec.Command("go", "build", "-o", program, "./examples/callback")
		build.Dir = root(t)
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("build receiver: %v\n%s", err, out)
		}
		return []string{program}
	},
}

// TestReceivers tests each receiver with deliveries of a hub, while both are killed.
func TestReceivers(t *testing.T) {
	t.Parallel()
	for name, command := range receivers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := hubtest.NewHub(t, "RSHUB_CALLBACK_ALLOW=127.0.0.0/8")
			r := &receiver{command: command(t), addr: hubtest.FreePort(t), spool: filepath.Join(t.TempDir(), "spool"), topic: h.Topic("demo")}
			r.url = "http://" + r.addr + "/changes"
			byName := vectors(t)
			signed := byName[slices.IndexFunc(byName, func(v vector) bool { return v.Name == "not ASCII" })]
			r.secret = signed.Secret
			h.Start(t)
			r.start(t)
			receiveAll(t, h, r)
			receiveBad(t, r, signed)
			receiveAgain(t, h, r)
			h.Kill()
			h.Start(t)
			receiveNewSecret(t, h, r)
		})
	}
}

// receiveAll checks that the receiver gets all changes while it and the hub are killed.
func receiveAll(t *testing.T, h *hubtest.Hub, r *receiver) {
	form := trial.Form("subscribe", r.url, r.topic, "hub.secret", r.secret, "rs.since", "start").Encode()
	hubtest.Must(t, http.StatusAccepted, http.MethodPost, h.URL+"/hub", []byte(form), trial.AsForm)
	hubtest.Publish(t, h, "demo", append(hubtest.Changes("first", 3), []byte(`{"loc":"https://example.org/?a=1&b=%3C","change":"deleted"}`+"\n")...))
	r.waitChanges(t, 4)
	if lines := r.lines(t); lines[len(lines)-1].Changes[len(lines[len(lines)-1].Changes)-1].Loc != "https://example.org/?a=1&b=%3C" {
		t.Errorf("last line = %+v, want a loc with an ampersand", lines[len(lines)-1])
	}
	r.Kill()
	hubtest.Publish(t, h, "demo", hubtest.Changes("second", 50))
	torn, err := os.OpenFile(r.spool, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := torn.WriteString(`{"mark":99,"mis`); err != nil { // as after a crash
		t.Fatal(err)
	}
	_ = torn.Close()
	h.Kill()
	h.Start(t)
	r.start(t)
	hubtest.Publish(t, h, "demo", hubtest.Changes("third", 6)) // triggers the next attempt
	r.waitChanges(t, 60)
}

// receiveBad sends invalid and forged requests.
func receiveBad(t *testing.T, r *receiver, signed vector) {
	before := r.lines(t)
	for _, test := range []struct {
		name, body, signature string
		want                  int
	}{
		{"without a signature", signed.Body, "", http.StatusForbidden},
		{"other body", signed.Body + " ", signed.Signatures["sha256"], http.StatusForbidden},
		{"truncated signature", signed.Body, signed.Signatures["sha256"][:40], http.StatusForbidden},
		{"wrong algorithm", signed.Body, strings.Replace(signed.Signatures["sha256"], "sha256", "sha512", 1), http.StatusForbidden},
		{"insecure algorithm", signed.Body, "sha1=" + strings.Repeat("0", 40), http.StatusForbidden},
		{"not a notification", signed.Body, signed.Signatures["sha256"], http.StatusBadRequest},
		{"not a notification, sha384", signed.Body, signed.Signatures["sha384"], http.StatusBadRequest},
		{"not a notification, sha512", signed.Body, signed.Signatures["sha512"], http.StatusBadRequest},
	} {
		if got := r.post(t, test.body, test.signature); got != test.want {
			t.Errorf("delivery %s = %d, want %d", test.name, got, test.want)
		}
	}
	for _, test := range []struct {
		mode, topic string
		want        int
	}{
		{"subscribe", r.topic, http.StatusOK},
		{"unsubscribe", r.topic, http.StatusOK},
		{"denied", r.topic, http.StatusOK},
		{"subscribe", r.topic + "x", http.StatusNotFound},
		{"", "", http.StatusNotFound},
	} {
		q := url.Values{"hub.mode": {test.mode}, "hub.topic": {test.topic}, "hub.challenge": {"a <b>&c"}, "hub.reason": {"because"}, "rs.time": {time.Now().UTC().Format(time.RFC3339)}}
		query := q.Encode()
		a := hubtest.Must(t, test.want, http.MethodGet, r.url+"?"+query, nil, "RS-Signature: "+sign(r.secret, query))
		for _, bad := range []string{"RS-Signature: " + sign("another", query), "X-Hub-Signature: " + sign(r.secret, query)} {
			hubtest.Must(t, http.StatusForbidden, http.MethodGet, r.url+"?"+query, nil, bad)
		}
		q.Set("rs.time", time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)) // a replay
		hubtest.Must(t, http.StatusForbidden, http.MethodGet, r.url+"?"+q.Encode(), nil, "RS-Signature: "+sign(r.secret, q.Encode()))
		if confirmed := string(a.Body) == "a <b>&c"; confirmed != (test.want == http.StatusOK && test.mode != "denied") {
			t.Errorf("body for mode %s of topic %s = %q, want the challenge only for a valid verification", test.mode, test.topic, a.Body)
		}
	}
	if after := r.lines(t); len(after) != len(before) {
		t.Errorf("receiver stored %+v, want nothing", after[len(before):])
	}
}

// receiveNewSecret rotates the secret. The receiver accepts deliveries with the old secret, and with
// the new one after a restart. The renewal must be confirmed.
func receiveNewSecret(t *testing.T, h *hubtest.Hub, r *receiver) {
	last := func() string {
		lines := r.lines(t)
		if some := lines[len(lines)-1].Changes; len(some) > 0 {
			return some[len(some)-1].Loc
		}
		return ""
	}
	for i, secret := range []string{"the next secret", ""} {
		if secret != "" {
			form := trial.Form("subscribe", r.url, r.topic, "hub.secret", secret, "rs.since", "now").Encode()
			before := h.Stderr.String()
			hubtest.Must(t, http.StatusAccepted, http.MethodPost, h.URL+"/hub", []byte(form), trial.AsForm)
			hubtest.Until(t, "the new secret is confirmed", func() error {
				if strings.Count(h.Stderr.String(), "confirmed") == strings.Count(before, "confirmed") {
					return errors.New(r.Stderr.String())
				}
				return nil
			})
		} else {
			r.Kill()
			r.secret = "the next secret"
			if err := os.Remove(r.spool); err != nil { // the test has sent other deliveries than the hub
				t.Fatal(err)
			}
			r.start(t)
		}
		name := fmt.Sprintf("rotated%d", i)
		hubtest.Publish(t, h, "demo", hubtest.Changes(name, 1))
		hubtest.Until(t, "the change arrives", func() error {
			if lines := r.lines(t); len(lines) == 0 || !strings.Contains(last(), name) {
				return errors.New(r.Stderr.String())
			}
			return nil
		})
	}
}

// notification returns the body of a delivery with the changes after a position up to another.
func notification(after, until uint64, attrs string) string {
	var urls strings.Builder
	for p := after + 1; p <= until; p++ {
		fmt.Fprintf(&urls, `<url><loc>https://example.org/%d</loc><rs:md change="updated" datetime="2026-01-01T00:00:00.000001Z" h:position="%d"/></url>`, p, p)
	}
	return fmt.Sprintf(`<?xml version="1.0" encoding="UTF-8"?>`+"\n"+`<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/" xmlns:h="https://github.com/rshub/rshub/terms/"><rs:md capability="changenotification" h:after="%d-5" h:cursor="%d-9"%s/>%s</urlset>`, after, until, attrs, urls.String())
}

// receiveAgain sends repeats, a gap, and the start of a recreated set. Their numbers continue those of
// the hub, which must restart before its next delivery to get higher numbers.
func receiveAgain(t *testing.T, h *hubtest.Hub, r *receiver) {
	lines := r.lines(t)
	_, newest, _ := strings.Cut(lines[len(lines)-1].Mark, "/")
	number, err := strconv.ParseUint(newest, 10, 64)
	if err != nil {
		t.Fatalf("mark = %q, want one with a number", lines[len(lines)-1].Mark)
	}
	for i, step := range []struct {
		name         string
		after, until uint64
		attrs, gap   string
		news         int // number of new changes; -1 means no line
		missed       bool
	}{
		{"repeat", 50, 60, "", "", -1, false},
		{"repeat with new changes", 55, 62, "", "", 2, false},
		{"missing change", 70, 71, "", "", 1, true},
		{"gap", 80, 82, "", "72-80", 2, true},
		{"lost tail", 40, 42, ` h:diverged="true"`, "", 2, false},
		{"next change", 42, 43, "", "", 1, false},
		{"recreated set", 0, 2, "", "1-", 2, true},
	} {
		before := r.lines(t)
		if i > 0 { // a repeat has the same number
			number++
		}
		attrs := fmt.Sprintf(` h:delivery="%d"`, number) + step.attrs
		var headers []string
		if step.gap != "" {
			attrs += fmt.Sprintf(` h:gap="%s"`, step.gap)
			headers = append(headers, "RS-Gap: "+step.gap)
		}
		body := notification(step.after, step.until, attrs)
		if got := r.post(t, body, sign(r.secret, body), headers...); got != http.StatusNoContent {
			t.Fatalf("delivery %s = %d, want 204: %s", step.name, got, r.Stderr.String())
		}
		news := r.lines(t)[len(before):]
		switch {
		case step.news < 0 && len(news) > 0:
			t.Errorf("%s: receiver stored %+v, want nothing", step.name, news)
		case step.news >= 0 && (len(news) != 1 || news[0].Missed != step.missed || len(news[0].Changes) != step.news || news[0].position() != step.until):
			t.Errorf("%s: receiver stored %+v, want %d changes up to %d, missed %t", step.name, news, step.news, step.until, step.missed)
		}
	}
}

// TestReceiverReplays replays deliveries to each receiver, as an attacker can, with other headers. Only
// a delivery with a higher number may move the mark back.
func TestReceiverReplays(t *testing.T) {
	t.Parallel()
	const diverged = ` h:diverged="true"`
	tests := []struct {
		name         string
		stored       string // earlier mark, with a number n
		after, until uint64
		delivery     string // n-1, n, n+1, or ""
		attrs, gap   string // attributes of the body, and header RS-Gap
		mark         string // new mark; "" means no line
		news         int
		missed       bool
	}{
		{"lower", "50/n", 50, 51, "n-1", "", "", "", 0, false},
		{"lower, missing change", "50/n", 60, 61, "n-1", "", "", "", 0, false},
		{"lower, gap", "50/n", 9, 10, "n-1", ` h:gap="4-9"`, "4-9", "", 0, false},
		{"lower, lost tail", "50/n", 40, 42, "n-1", diverged, "", "", 0, false},
		{"lower, added header", "50/n", 40, 42, "n-1", "", "1-", "", 0, false},
		{"equal", "50/n", 40, 50, "n", "", "", "", 0, false},
		{"equal, new changes", "50/n", 48, 52, "n", "", "", "52/n", 2, false},
		{"equal, missing change", "50/n", 60, 61, "n", "", "", "61/n", 1, true},
		{"equal, gap", "50/n", 49, 50, "n", ` h:gap="4-49"`, "4-49", "", 0, false},
		{"equal, lost tail", "50/n", 40, 42, "n", diverged, "", "", 0, false},
		{"equal, added header", "50/n", 40, 42, "n", "", "1-", "", 0, false},
		{"no number", "50/n", 50, 51, "", "", "", "51/n", 1, false},
		{"no number, missing change", "50/n", 60, 61, "", "", "", "61/n", 1, true},
		{"no number, gap ahead", "50/n", 60, 61, "", "", "51-60", "61/n", 1, true},
		{"no number, lost tail", "50/n", 40, 42, "", diverged, "", "", 0, false},
		{"no number, added header", "50/n", 40, 42, "", "", "1-", "", 0, false},
		{"higher", "50/n", 50, 51, "n+1", "", "", "51/n+1", 1, false},
		{"higher, repeat", "50/n", 40, 50, "n+1", "", "", "50/n+1", 0, false},
		{"higher, missing change", "50/n", 60, 61, "n+1", "", "", "61/n+1", 1, true},
		{"higher, gap", "50/n", 0, 2, "n+1", ` h:gap="1-"`, "1-", "2/n+1", 2, true},
		{"higher, lost tail", "50/n", 40, 42, "n+1", diverged, "", "42/n+1", 2, false},
		{"higher, added header", "50/n", 40, 42, "n+1", "", "1-", "50/n+1", 0, false},
		{"unknown", "50", 50, 51, "n", "", "", "51/n", 1, false},
		{"unknown, gap", "50", 0, 2, "n", ` h:gap="1-"`, "1-", "2/n", 2, true},
		{"unknown, lost tail", "50", 40, 42, "n", diverged, "", "42/n", 2, false},
		{"unknown, added header", "50", 40, 42, "n", "", "1-", "50/n", 0, false},
		{"unknown, no number, gap", "50", 0, 2, "", "", "1-", "2", 2, true},
		{"unknown, no number, repeat", "50", 40, 42, "", "", "", "", 0, false},
		{"first", "", 9, 10, "n", "", "", "10/n", 1, false},
		{"first, added header", "", 9, 10, "n", "", "1-", "10/n", 1, false},
	}
	for language, command := range receivers {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			r := &receiver{command: command(t), addr: hubtest.FreePort(t), topic: "http://127.0.0.1/sets/demo/changes", secret: "secret"}
			r.url = "http://" + r.addr + "/changes"
			deliver := func(t *testing.T, body string, headers ...string) {
				t.Helper()
				if got := r.post(t, body, sign(r.secret, body), headers...); got != http.StatusNoContent {
					t.Fatalf("delivery = %d, want 204: %s", got, r.Stderr.String())
				}
			}
			numbered := func(text string, n uint64) string {
				return strings.NewReplacer("n-1", fmt.Sprint(n-1), "n+1", fmt.Sprint(n+1), "n", fmt.Sprint(n)).Replace(text)
			}
			restart := func(spool string) { // the process outlives the subtest that started it
				if r.Process != nil {
					r.Kill()
				}
				r.spool = filepath.Join(t.TempDir(), "spool")
				if spool != "" {
					if err := os.WriteFile(r.spool, []byte(spool), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				r.start(t)
			}
			again := func() {
				r.Kill()
				r.start(t)
			}
			restart("")
			for i, test := range tests {
				t.Run(test.name, func(t *testing.T) {
					n := uint64(1)<<62 + 10*uint64(i) // not exact as a float64
					switch test.stored {
					case "":
						restart("")
					case "50": // as stored by versions without numbers
						restart(`{"mark":50,"missed":false,"changes":[]}` + "\n")
					default:
						deliver(t, notification(50, 50, diverged+fmt.Sprintf(` h:delivery="%d"`, n)))
						if i%4 == 0 { // the number must be stored
							again()
						}
					}
					before := r.lines(t)
					attrs := test.attrs
					if test.delivery != "" {
						attrs += fmt.Sprintf(` h:delivery="%s"`, numbered(test.delivery, n))
					}
					var headers []string
					if test.gap != "" {
						headers = []string{"RS-Gap: " + test.gap}
					}
					for range 2 { // the hub missed the first response
						deliver(t, notification(test.after, test.until, attrs), headers...)
						if test.stored == "50" && test.delivery == "" {
							break // a repeat without a number looks like a new gap
						}
					}
					news := r.lines(t)[len(before):]
					if test.mark == "" {
						if len(news) > 0 {
							t.Errorf("receiver stored %+v, want nothing", news)
						}
						return
					}
					want := numbered(test.mark, n)
					if len(news) != 1 || news[0].Mark != want || len(news[0].Changes) != test.news || news[0].Missed != test.missed {
						t.Errorf("receiver stored %+v, want mark %s, %d changes, missed %t", news, want, test.news, test.missed)
					}
				})
			}
			for _, bad := range []string{"", "x", "-1", "1.5", "9223372036854775808"} {
				body := notification(0, 1, fmt.Sprintf(` h:delivery="%s"`, bad))
				if got := r.post(t, body, sign(r.secret, body)); got != http.StatusBadRequest {
					t.Errorf("delivery with h:delivery=%q = %d, want 400", bad, got)
				}
			}
		})
	}
}
