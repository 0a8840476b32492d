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

// vectors are the signatures that callback/websub is tested with, too.
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

// start starts it, anew or again.
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

// A spooled line is a delivery as the receiver keeps it.
type spooled struct {
	Mark    string // POSITION/NUMBER, or POSITION if no number is known
	Missed  bool
	Changes []struct {
		Position uint64
		Loc      string
		Change   string
		Datetime string
	}
}

// position is the position of the mark; 0 if there is none.
func (l spooled) position() uint64 {
	at, _, _ := strings.Cut(l.Mark, "/")
	n, _ := strconv.ParseUint(at, 10, 64)
	return n
}

func (r *receiver) lines(t *testing.T) (all []spooled) {
	t.Helper()
	text, err := os.ReadFile(r.spool)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		var l spooled
		if json.Unmarshal(line, &l) == nil { // else it is being written
			all = append(all, l)
		}
	}
	return all
}

// has waits until the changes up to a position are there, in order, once.
func (r *receiver) has(t *testing.T, n int) {
	t.Helper()
	hubtest.Until(t, fmt.Sprintf("the receiver has %d changes", n), func() error {
		next := uint64(1)
		for _, l := range r.lines(t) {
			for _, c := range l.Changes {
				if c.Position != next || c.Loc == "" || c.Change == "" || c.Datetime == "" {
					t.Fatalf("%+v stands where position %d should", c, next)
				}
				next++
			}
			if l.position() != next-1 || l.Missed {
				t.Fatalf("a line with the mark %q, missed %t, ends with position %d", l.Mark, l.Missed, next-1)
			}
		}
		if int(next)-1 != n {
			return fmt.Errorf("it has %d", next-1)
		}
		return nil
	})
}

// post delivers as a hub does. It returns the status of the answer.
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

// receivers are the commands of the receivers by their languages.
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
			t.Fatalf("build the receiver: %v\n%s", err, out)
		}
		return []string{program}
	},
}

// TestReceivers lets each receiver take deliveries of a hub, while both are killed.
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

// receiveAll has the receiver take all changes, while it is killed, and the hub, too.
func receiveAll(t *testing.T, h *hubtest.Hub, r *receiver) {
	form := trial.Form("subscribe", r.url, r.topic, "hub.secret", r.secret, "rs.since", "start").Encode()
	hubtest.Must(t, http.StatusAccepted, http.MethodPost, h.URL+"/hub", []byte(form), trial.AsForm)
	hubtest.Publish(t, h, "demo", append(hubtest.Changes("first", 3), []byte(`{"loc":"https://example.org/?a=1&b=%3C","change":"deleted"}`+"\n")...))
	r.has(t, 4)
	if lines := r.lines(t); lines[len(lines)-1].Changes[len(lines[len(lines)-1].Changes)-1].Loc != "https://example.org/?a=1&b=%3C" {
		t.Errorf("a loc with an ampersand is %+v", lines[len(lines)-1])
	}
	r.Kill()
	hubtest.Publish(t, h, "demo", hubtest.Changes("second", 50))
	torn, err := os.OpenFile(r.spool, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := torn.WriteString(`{"mark":99,"mis`); err != nil { // as a crash leaves it
		t.Fatal(err)
	}
	_ = torn.Close()
	h.Kill()
	h.Start(t)
	r.start(t)
	hubtest.Publish(t, h, "demo", hubtest.Changes("third", 6)) // brings the next try forward
	r.has(t, 60)
}

// receiveBad tries what nobody but a stranger sends.
func receiveBad(t *testing.T, r *receiver, signed vector) {
	before := r.lines(t)
	for _, test := range []struct {
		name, body, signature string
		want                  int
	}{
		{"no signature", signed.Body, "", http.StatusForbidden},
		{"another body", signed.Body + " ", signed.Signatures["sha256"], http.StatusForbidden},
		{"half a signature", signed.Body, signed.Signatures["sha256"][:40], http.StatusForbidden},
		{"another algorithm", signed.Body, strings.Replace(signed.Signatures["sha256"], "sha256", "sha512", 1), http.StatusForbidden},
		{"an algorithm that is not safe", signed.Body, "sha1=" + strings.Repeat("0", 40), http.StatusForbidden},
		{"nothing of a notification", signed.Body, signed.Signatures["sha256"], http.StatusBadRequest},
		{"the same with sha384", signed.Body, signed.Signatures["sha384"], http.StatusBadRequest},
		{"the same with sha512", signed.Body, signed.Signatures["sha512"], http.StatusBadRequest},
	} {
		if got := r.post(t, test.body, test.signature); got != test.want {
			t.Errorf("%s is answered %d, not %d", test.name, got, test.want)
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
		q.Set("rs.time", time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)) // somebody sends it again
		hubtest.Must(t, http.StatusForbidden, http.MethodGet, r.url+"?"+q.Encode(), nil, "RS-Signature: "+sign(r.secret, q.Encode()))
		if confirmed := string(a.Body) == "a <b>&c"; confirmed != (test.want == http.StatusOK && test.mode != "denied") {
			t.Errorf("%s of %s is answered %q", test.mode, test.topic, a.Body)
		}
	}
	if after := r.lines(t); len(after) != len(before) {
		t.Errorf("the receiver kept %+v", after[len(before):])
	}
}

// receiveNewSecret changes the secret. The receiver goes on with the one before, and then has the
// new one, and is in time both ways. A renewal needs its confirmation.
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
			asked := h.Stderr.String()
			hubtest.Must(t, http.StatusAccepted, http.MethodPost, h.URL+"/hub", []byte(form), trial.AsForm)
			hubtest.Until(t, "the new secret is confirmed", func() error {
				if strings.Count(h.Stderr.String(), "confirmed") == strings.Count(asked, "confirmed") {
					return errors.New(r.Stderr.String())
				}
				return nil
			})
		} else {
			r.Kill()
			r.secret = "the next secret"
			if err := os.Remove(r.spool); err != nil { // what came by hand before is not what the hub has
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

// notification is the body of a delivery: changes of the positions after one up to another.
func notification(after, until uint64, attrs string) string {
	var urls strings.Builder
	for p := after + 1; p <= until; p++ {
		fmt.Fprintf(&urls, `<url><loc>https://example.org/%d</loc><rs:md change="updated" datetime="2026-01-01T00:00:00.000001Z" h:position="%d"/></url>`, p, p)
	}
	return fmt.Sprintf(`<?xml version="1.0" encoding="UTF-8"?>`+"\n"+`<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/" xmlns:h="https://github.com/rshub/rshub/terms/"><rs:md capability="changenotification" h:after="%d-5" h:cursor="%d-9"%s/>%s</urlset>`, after, until, attrs, urls.String())
}

// receiveAgain sends the receiver repeats, a gap, and the beginning of a set made anew. Their
// numbers follow those of the hub, which has to start again before its next delivery: then its
// numbers are higher.
func receiveAgain(t *testing.T, h *hubtest.Hub, r *receiver) {
	lines := r.lines(t)
	_, newest, _ := strings.Cut(lines[len(lines)-1].Mark, "/")
	number, err := strconv.ParseUint(newest, 10, 64)
	if err != nil {
		t.Fatalf("the mark is %q, want a number in it", lines[len(lines)-1].Mark)
	}
	for i, step := range []struct {
		name         string
		after, until uint64
		attrs, gap   string
		news         int // -1: no line
		missed       bool
	}{
		{"a repeat", 50, 60, "", "", -1, false},
		{"a repeat with more", 55, 62, "", "", 2, false},
		{"one that is missing", 70, 71, "", "", 1, true},
		{"a gap", 80, 82, "", "72-80", 2, true},
		{"a tail that was lost", 40, 42, ` h:diverged="true"`, "", 2, false},
		{"the next", 42, 43, "", "", 1, false},
		{"a set made anew", 0, 2, "", "1-", 2, true},
	} {
		before := r.lines(t)
		if i > 0 { // a repeat has the number of what it repeats
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
			t.Fatalf("%s is answered %d: %s", step.name, got, r.Stderr.String())
		}
		news := r.lines(t)[len(before):]
		switch {
		case step.news < 0 && len(news) > 0:
			t.Errorf("%s is kept: %+v", step.name, news)
		case step.news >= 0 && (len(news) != 1 || news[0].Missed != step.missed || len(news[0].Changes) != step.news || news[0].position() != step.until):
			t.Errorf("%s is kept as %+v", step.name, news)
		}
	}
}

// TestReceiverReplays sends each receiver deliveries that it had before, which an attacker
// may send with other headers. Only a delivery with a higher number moves the mark back.
func TestReceiverReplays(t *testing.T) {
	t.Parallel()
	const diverged = ` h:diverged="true"`
	tests := []struct {
		name         string
		stored       string // mark before; with a number n
		after, until uint64
		delivery     string // n-1, n, n+1, or empty
		attrs, gap   string // of the body; the header RS-Gap
		mark         string // empty: no line
		news         int
		missed       bool
	}{
		{"lower", "50/n", 50, 51, "n-1", "", "", "", 0, false},
		{"lower, one is missing", "50/n", 60, 61, "n-1", "", "", "", 0, false},
		{"lower, a gap", "50/n", 9, 10, "n-1", ` h:gap="4-9"`, "4-9", "", 0, false},
		{"lower, a lost tail", "50/n", 40, 42, "n-1", diverged, "", "", 0, false},
		{"lower, an added header", "50/n", 40, 42, "n-1", "", "1-", "", 0, false},
		{"equal", "50/n", 40, 50, "n", "", "", "", 0, false},
		{"equal, with more", "50/n", 48, 52, "n", "", "", "52/n", 2, false},
		{"equal, one is missing", "50/n", 60, 61, "n", "", "", "61/n", 1, true},
		{"equal, a gap", "50/n", 49, 50, "n", ` h:gap="4-49"`, "4-49", "", 0, false},
		{"equal, a lost tail", "50/n", 40, 42, "n", diverged, "", "", 0, false},
		{"equal, an added header", "50/n", 40, 42, "n", "", "1-", "", 0, false},
		{"missing", "50/n", 50, 51, "", "", "", "51/n", 1, false},
		{"missing, one is missing", "50/n", 60, 61, "", "", "", "61/n", 1, true},
		{"missing, a gap ahead", "50/n", 60, 61, "", "", "51-60", "61/n", 1, true},
		{"missing, a lost tail", "50/n", 40, 42, "", diverged, "", "", 0, false},
		{"missing, an added header", "50/n", 40, 42, "", "", "1-", "", 0, false},
		{"higher", "50/n", 50, 51, "n+1", "", "", "51/n+1", 1, false},
		{"higher, a repeat", "50/n", 40, 50, "n+1", "", "", "50/n+1", 0, false},
		{"higher, one is missing", "50/n", 60, 61, "n+1", "", "", "61/n+1", 1, true},
		{"higher, a gap", "50/n", 0, 2, "n+1", ` h:gap="1-"`, "1-", "2/n+1", 2, true},
		{"higher, a lost tail", "50/n", 40, 42, "n+1", diverged, "", "42/n+1", 2, false},
		{"higher, an added header", "50/n", 40, 42, "n+1", "", "1-", "50/n+1", 0, false},
		{"unknown", "50", 50, 51, "n", "", "", "51/n", 1, false},
		{"unknown, a gap", "50", 0, 2, "n", ` h:gap="1-"`, "1-", "2/n", 2, true},
		{"unknown, a lost tail", "50", 40, 42, "n", diverged, "", "42/n", 2, false},
		{"unknown, an added header", "50", 40, 42, "n", "", "1-", "50/n", 0, false},
		{"unknown and missing, a gap", "50", 0, 2, "", "", "1-", "2", 2, true},
		{"unknown and missing, a repeat", "50", 40, 42, "", "", "", "", 0, false},
		{"first", "", 9, 10, "n", "", "", "10/n", 1, false},
		{"first, an added header", "", 9, 10, "n", "", "1-", "10/n", 1, false},
	}
	for language, command := range receivers {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			r := &receiver{command: command(t), addr: hubtest.FreePort(t), topic: "http://127.0.0.1/sets/demo/changes", secret: "secret"}
			r.url = "http://" + r.addr + "/changes"
			deliver := func(t *testing.T, body string, headers ...string) {
				t.Helper()
				if got := r.post(t, body, sign(r.secret, body), headers...); got != http.StatusNoContent {
					t.Fatalf("the answer is %d, want 204: %s", got, r.Stderr.String())
				}
			}
			numbered := func(text string, n uint64) string {
				return strings.NewReplacer("n-1", fmt.Sprint(n-1), "n+1", fmt.Sprint(n+1), "n", fmt.Sprint(n)).Replace(text)
			}
			restart := func(spool string) { // the process outlives the row that started it
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
					case "50": // as the version without numbers stored it
						restart(`{"mark":50,"missed":false,"changes":[]}` + "\n")
					default:
						deliver(t, notification(50, 50, diverged+fmt.Sprintf(` h:delivery="%d"`, n)))
						if i%4 == 0 { // the number is stored, too
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
					for range 2 { // the hub did not get the first answer
						deliver(t, notification(test.after, test.until, attrs), headers...)
						if test.stored == "50" && test.delivery == "" {
							break // a repeat that has no number cannot be told from a new gap
						}
					}
					news := r.lines(t)[len(before):]
					if test.mark == "" {
						if len(news) > 0 {
							t.Errorf("the receiver stored %+v, want nothing", news)
						}
						return
					}
					want := numbered(test.mark, n)
					if len(news) != 1 || news[0].Mark != want || len(news[0].Changes) != test.news || news[0].Missed != test.missed {
						t.Errorf("the receiver stored %+v, want mark %s, %d changes, missed %t", news, want, test.news, test.missed)
					}
				})
			}
			for _, bad := range []string{"", "x", "-1", "1.5", "9223372036854775808"} {
				body := notification(0, 1, fmt.Sprintf(` h:delivery="%s"`, bad))
				if got := r.post(t, body, sign(r.secret, body)); got != http.StatusBadRequest {
					t.Errorf("h:delivery=%q is answered %d, want 400", bad, got)
				}
			}
		})
	}
}
