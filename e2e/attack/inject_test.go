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

// payloads are texts that are special in logs, terminals, headers, pages or XML.
var payloads = []string{
	"<script>alert(1)</script>", `"><img src=x onerror=alert(1)>`, "</title></script><svg onload=alert(1)>", "javascript:alert(1)", "]]><x/>&undefined;", "{{7*7}}${7*7}",
	"\r\nInjected: 1\r\n\r\n<script>", "\n{\"level\":\"ERROR\",\"msg\":\"forged\"}", "\x1b[2J\x1b]0;owned\x07", "\u009b2J", "\u202eabc\u2028\u2029", "a\x00b", "%0d%0aInjected:%201", "\xff\xfe", strings.Repeat("A", 5000),
}

// injections is an attack that puts payloads into every text that a hub accepts.
func injections(audit string) []attack {
	return []attack{{"injections", func(a *attacker) {
		for _, m := range payloads {
			a.injectHeaders(m)
			a.injectTexts(m)
		}
		a.wantStatuses(200, 202, 400, 401, 403, 404, 405, 406, 414, 415, 421, 429, 431)
		a.checkDocuments()
		a.checkLog("the log", a.hub.Stderr.String())
		text, err := os.ReadFile(audit)
		if err != nil {
			a.t.Fatal(err)
		}
		a.checkLog("the audit log", string(text))
	}}}
}

// injectHeaders sends a payload in the head of a request, as an HTTP client would not.
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
		response := a.sendRaw(a.hub.Host, head+"\r\n")
		top, body, _ := strings.Cut(response, "\r\n\r\n")
		if strings.Contains(top, "\nInjected") || strings.ContainsFunc(strings.NewReplacer("\r\n", "").Replace(top), isControl) {
			a.t.Errorf("got response header\n%q\nto %.300q, want no control characters", top, head)
		}
		if strings.Contains(strings.ToLower(top), "content-type: text/html") && strings.Contains(body, m) && strings.ContainsAny(m, "<{") {
			a.t.Errorf("got page with the payload in response to %.300q", head)
		}
	}
}

// injectTexts sends a payload in texts that a hub stores and shows to others.
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
		form := url.Values{"hub.mode": {"subscribe"}, "hub.callback": {fmt.Sprintf("http://%s:9998/", attackerAddr.IP)}, "hub.topic": {a.hub.Topic(calmSet)}}
		form.Set(name, m)
		a.request(http.MethodPost, a.hub.URL+"/hub", []byte(form.Encode()), a.auth, "Content-Type: application/x-www-form-urlencoded")
	}
}

// isControl reports whether a character is special for a terminal.
func isControl(c rune) bool { return unicode.IsControl(c) || c == '\u2028' || c == '\u2029' }

// checkDocuments checks the documents that have texts of others.
func (a *attacker) checkDocuments() {
	for _, path := range []string{"/", "/sets", "/.well-known/resourcesync", "/sets/evil", "/sets/evil/capabilitylist.xml", "/sets/evil/changelist.xml", "/sets/evil/changes", "/sets/evil/changes?since=start&limit=10000", "/sets/evil/resources"} {
		response := hubtest.Must(a.t, http.StatusOK, http.MethodGet, a.hub.URL+path, nil, a.auth)
		kind := response.Header.Get("Content-Type")
		if response.Header.Get("X-Content-Type-Options") != "nosniff" || response.Header.Get("Content-Security-Policy") == "" || response.Header.Get("Injected") != "" {
			a.t.Errorf("header of %s = %v, want security headers and no injected one", path, response.Header)
		}
		switch {
		case strings.Contains(kind, "json"):
			if !json.Valid(response.Body) {
				a.t.Errorf("%s is not JSON", path)
			}
		case strings.Contains(kind, "xml"):
			d := xml.NewDecoder(bytes.NewReader(response.Body))
			for {
				if _, err := d.Token(); err == io.EOF {
					break
				} else if err != nil {
					a.t.Errorf("%s is not XML: %v", path, err)
					break
				}
			}
		case strings.Contains(kind, "html"):
			for _, m := range payloads[:3] {
				if bytes.Contains(response.Body, []byte(m)) {
					a.t.Errorf("%s has the payload %s", path, m)
				}
			}
		default:
			a.t.Errorf("Content-Type of %s = %s, want JSON, XML or HTML", path, kind)
		}
	}
}

// checkLog checks that a log has no forged lines, and no control characters.
func (a *attacker) checkLog(what, text string) {
	n := 0
	for line := range strings.Lines(text) {
		if !strings.HasSuffix(line, "\n") {
			break // incomplete
		}
		var object map[string]any
		if err := json.Unmarshal([]byte(line), &object); err != nil || object["time"] == nil || object["msg"] == "forged" {
			a.t.Errorf("%s has the invalid line %.500q: %v", what, line, err)
		}
		if strings.ContainsFunc(strings.TrimSuffix(line, "\n"), isControl) {
			a.t.Errorf("%s has a line with control characters: %.500q", what, line)
		}
		n++
	}
	if n == 0 {
		a.t.Errorf("%s is empty", what)
	}
}
