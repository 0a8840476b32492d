package attack

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"unicode"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// mischief is what has a meaning to a log, a terminal, a header, a page or XML.
var mischief = []string{
	"<script>alert(1)</script>", `"><img src=x onerror=alert(1)>`, "</title></script><svg onload=alert(1)>", "javascript:alert(1)", "]]><x/>&undefined;", "{{7*7}}${7*7}",
	"\r\nInjected: 1\r\n\r\n<script>", "\n{\"level\":\"ERROR\",\"msg\":\"forged\"}", "\x1b[2J\x1b]0;owned\x07", "\u009b2J", "\u202eabc\u2028\u2029", "a\x00b", "%0d%0aInjected:%201", "\xff\xfe", strings.Repeat("A", 5000),
}

// injections puts mischief wherever a hub takes text, and looks at what it makes of it.
func injections(audit string) []attack {
	return []attack{{"injections", func(a *attacker) {
		for _, m := range mischief {
			a.injectHeaders(m)
			a.injectTexts(m)
		}
		a.only(200, 202, 400, 401, 403, 404, 405, 406, 414, 415, 421, 429, 431)
		a.wellFormed()
		a.oneObjectALine("the log", a.hub.Stderr.String())
		text, err := os.ReadFile(audit)
		if err != nil {
			a.t.Fatal(err)
		}
		a.oneObjectALine("the audit log", string(text))
	}}}
}

// injectHeaders sends mischief in the head of a request, as no HTTP client would.
func (a *attacker) injectHeaders(m string) {
	bare := "GET /sets HTTP/1.1\r\nHost: " + a.hub.Host + "\r\nConnection: close\r\n"
	for _, head := range []string{
		"GET /" + m + " HTTP/1.1\r\nHost: " + a.hub.Host + "\r\nConnection: close\r\n",
		"GET /sets/" + url.PathEscape(m) + " HTTP/1.1\r\nHost: " + a.hub.Host + "\r\nConnection: close\r\n",
		"GET /sets/" + url.PathEscape(m) + "/changes HTTP/1.1\r\nHost: " + a.hub.Host + "\r\nConnection: close\r\n",
		"GET /sets?after=" + url.QueryEscape(m) + " HTTP/1.1\r\nHost: " + a.hub.Host + "\r\nConnection: close\r\n",
		"GET /sets/calm/changes?since=" + url.QueryEscape(m) + " HTTP/1.1\r\nHost: " + a.hub.Host + "\r\nConnection: close\r\n",
		m + " / HTTP/1.1\r\nHost: " + a.hub.Host + "\r\nConnection: close\r\n",
		"GET / HTTP/1.1\r\nHost: " + m + "\r\nConnection: close\r\n",
		bare + "X-Request-Id: " + m + "\r\n", bare + "User-Agent: " + m + "\r\n", bare + "Referer: " + m + "\r\n", bare + "Origin: " + m + "\r\n", bare + "Accept: " + m + "\r\n",
		bare + "X-Forwarded-For: " + m + "\r\n", bare + "X-Forwarded-Host: " + m + "\r\nX-Forwarded-Proto: " + m + "\r\n", bare + "Forwarded: for=\"" + m + "\";host=" + m + "\r\n",
		bare + "Authorization: Bearer " + m + "\r\n", bare + "If-None-Match: " + m + "\r\n", bare + "Last-Event-ID: " + m + "\r\n", bare + m + ": x\r\n",
		"POST /sets/evil/changes HTTP/1.1\r\nHost: " + a.hub.Host + "\r\nConnection: close\r\n" + a.auth + "\r\nContent-Length: 0\r\nIdempotency-Key: " + m + "\r\nContent-Type: " + m + "\r\n",
		"POST /hub HTTP/1.1\r\nHost: " + a.hub.Host + "\r\nConnection: close\r\nContent-Length: 0\r\nLink: <" + m + ">; rel=\"self\"\r\n",
	} {
		answer := a.raw(a.hub.Host, head+"\r\n")
		top, body, _ := strings.Cut(answer, "\r\n\r\n")
		if strings.Contains(top, "\nInjected") || strings.ContainsFunc(strings.NewReplacer("\r\n", "").Replace(top), bad) {
			a.t.Errorf("%.300q\nis answered with the header\n%q", head, top)
		}
		if strings.Contains(strings.ToLower(top), "content-type: text/html") && strings.Contains(body, m) && strings.ContainsAny(m, "<{") {
			a.t.Errorf("%.300q\nis answered with a page that shows it", head)
		}
	}
}

// injectTexts sends mischief in what a hub keeps and shows to others.
func (a *attacker) injectTexts(m string) {
	quoted, _ := json.Marshal(m) // a string
	escaped := url.QueryEscape(m)
	for _, body := range []string{
		`{"title":` + string(quoted) + `}`, `{"describedby":` + string(quoted) + `}`, `{"describedby":"https://evil.example.org/?` + escaped + `"}`, `{"resourcelist":` + string(quoted) + `}`,
		`{` + string(quoted) + `:1}`, `{"every":` + string(quoted) + `}`,
	} {
		a.request(http.MethodPut, a.hub.URL+"/sets/evil", []byte(body), a.auth, "Content-Type: application/json")
		a.request(http.MethodPut, a.hub.URL+"/sets/"+url.PathEscape(m), []byte(body), a.auth, "Content-Type: application/json")
	}
	for _, member := range []string{"loc", "change", "hash", "type", "encoding", "path", "lastmod", m} {
		change := map[string]any{"loc": "https://evil.example.org/?" + escaped, "change": "updated"}
		change[member] = m
		one, _ := json.Marshal(change) // strings
		a.request(http.MethodPost, a.hub.Topic("evil"), fmt.Appendf(nil, `{"changes":[%s]}`, one), a.auth, "Content-Type: application/json")
		a.request(http.MethodPost, a.hub.Topic("evil"), one, a.auth, "Content-Type: application/x-ndjson")
	}
	link, _ := json.Marshal(map[string]any{"loc": "https://evil.example.org/" + escaped, "change": "updated", "{https://evil.example.org/}x": m, "ln": []any{map[string]any{"rel": m, "href": "https://evil.example.org/", "type": m}}})
	a.request(http.MethodPost, a.hub.Topic("evil"), fmt.Appendf(nil, `{"changes":[%s]}`, link), a.auth, "Content-Type: application/json")
	for _, name := range []string{"hub.mode", "hub.callback", "hub.topic", "hub.secret", "hub.lease_seconds", "rs.since", "rs.prefix"} {
		form := url.Values{"hub.mode": {"subscribe"}, "hub.callback": {fmt.Sprintf("http://%s:9998/", lair.IP)}, "hub.topic": {a.hub.Topic(calmSet)}}
		form.Set(name, m)
		a.request(http.MethodPost, a.hub.URL+"/hub", []byte(form.Encode()), a.auth, "Content-Type: application/x-www-form-urlencoded")
	}
}

// bad reports whether a character has a meaning to a terminal.
func bad(c rune) bool { return unicode.IsControl(c) || c == '\u2028' || c == '\u2029' }

// wellFormed looks at everything that shows what others have sent.
func (a *attacker) wellFormed() {
	for _, path := range []string{"/", "/sets", "/.well-known/resourcesync", "/sets/evil", "/sets/evil/capabilitylist.xml", "/sets/evil/changelist.xml", "/sets/evil/changes", "/sets/evil/changes?since=start&limit=10000", "/sets/evil/resources"} {
		answer := hubtest.Must(a.t, http.StatusOK, http.MethodGet, a.hub.URL+path, nil, a.auth)
		kind := answer.Header.Get("Content-Type")
		if answer.Header.Get("X-Content-Type-Options") != "nosniff" || answer.Header.Get("Content-Security-Policy") == "" || answer.Header.Get("Injected") != "" {
			a.t.Errorf("%s has the header %v", path, answer.Header)
		}
		switch {
		case strings.Contains(kind, "json"):
			if !json.Valid(answer.Body) {
				a.t.Errorf("%s is no JSON", path)
			}
		case strings.Contains(kind, "xml"):
			d := xml.NewDecoder(bytes.NewReader(answer.Body))
			for {
				if _, err := d.Token(); err == io.EOF {
					break
				} else if err != nil {
					a.t.Errorf("%s is no XML: %v", path, err)
					break
				}
			}
		case strings.Contains(kind, "html"):
			for _, m := range mischief[:3] {
				if bytes.Contains(answer.Body, []byte(m)) {
					a.t.Errorf("%s has %s", path, m)
				}
			}
		default:
			a.t.Errorf("%s is %s", path, kind)
		}
	}
}

// oneObjectALine checks that nobody has made up lines of a log, nor put into it what does
// harm on a terminal.
func (a *attacker) oneObjectALine(what, text string) {
	n := 0
	for line := range strings.Lines(text) {
		if !strings.HasSuffix(line, "\n") {
			break // it is being written
		}
		var object map[string]any
		if err := json.Unmarshal([]byte(line), &object); err != nil || object["time"] == nil || object["msg"] == "forged" {
			a.t.Errorf("%s has the line %.500q: %v", what, line, err)
		}
		if strings.ContainsFunc(strings.TrimSuffix(line, "\n"), bad) {
			a.t.Errorf("%s has a line that does harm on a terminal: %.500q", what, line)
		}
		n++
	}
	if n == 0 {
		a.t.Errorf("%s is empty", what)
	}
}
