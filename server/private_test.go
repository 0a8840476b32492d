package server

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gorilla/websocket"

	"github.com/rshub/rshub/access"
	"github.com/rshub/rshub/internal/running"
)

// volatile are the parts of an answer that no two answers share.
var volatile = regexp.MustCompile(`"requestId":"[^"]*"|\d{4}-\d\d-\d\dT[0-9:.]+Z`)

// seen returns all that a caller sees of an answer, with a set's name taken out.
func seen(resp *http.Response, body, set string) string {
	var text strings.Builder
	fmt.Fprintln(&text, resp.Status)
	for _, name := range slices.Sorted(maps.Keys(resp.Header)) {
		if name != "Date" && name != "X-Request-Id" && name != "Content-Length" { // the last depends on the name
			fmt.Fprintln(&text, name, resp.Header[name])
		}
	}
	text.WriteString(body)
	return volatile.ReplaceAllString(strings.ReplaceAll(text.String(), set, "SET"), "")
}

// To those without a right of their own a private set is like one that is not there, at
// every URL and by every method; to the others it is a set.
func TestPrivate(t *testing.T) {
	known, texts := tokens(t, "publish:*,follow:*,operate", "follow:hidden", "publish:hidden", "follow:other,publish:other", "operate", "anyone - follow:*")
	h := start(t, Config{Callers: known})
	const owner, follower, publisher, other, operator, anyone, wrong = 0, 1, 2, 3, 4, 5, 6
	texts = append(texts, "rshub_WRONG")
	bearer := func(who int) []string {
		if texts[who] == "" {
			return nil
		}
		return []string{"Authorization", "Bearer " + texts[who]}
	}
	for _, set := range []string{"hidden", "shown"} {
		h.Publish(set, bearer(owner)...)
	}
	if resp, body := running.Do(t, "PUT", h.URL+"/sets/hidden", `{"title":"the hidden one","private":true}`, bearer(owner)...); resp.StatusCode != http.StatusOK || !strings.Contains(body, `"private":true`) {
		t.Fatalf("PUT is answered %d %s", resp.StatusCode, body)
	}

	// Where there are several sets, the private one is there for who may follow it.
	for who, sees := range []bool{true, true, false, false, false, false} {
		for _, path := range []string{"/", "/sets", "/sets?after=a", "/.well-known/resourcesync"} {
			if resp, body := running.Do(t, "GET", h.URL+path, "", bearer(who)...); resp.StatusCode != http.StatusOK || strings.Contains(body, "hidden") != sees || !strings.Contains(body, "shown") {
				t.Errorf("caller %d at %s: %d %s", who, path, resp.StatusCode, body)
			}
		}
	}

	type request struct {
		method, path, body string
		headers            []string
		may                []int // callers to whom the set is there; the owner always
	}
	form := []string{"Content-Type", "application/x-www-form-urlencoded"}
	all := []request{
		{"GET", "/sets/SET", "", nil, []int{follower}},
		{"HEAD", "/sets/SET", "", nil, []int{follower}},
		{"GET", "/sets/SET/changes?since=start", "", nil, []int{follower}},
		{"GET", "/sets/SET/changes", "", nil, []int{follower}},
		{"GET", "/sets/SET/changes?since=now", "", []string{"Accept", "text/event-stream", "X-Test", "head"}, []int{follower}},
		{"GET", "/sets/SET/changes?since=nonsense", "", nil, []int{follower}},
		{"GET", "/sets/SET/changes?since=baseline", "", nil, []int{follower}},
		{"GET", "/sets/SET/changes?since=start", "", []string{"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA=="}, []int{follower}},
		{"GET", "/sets/SET/resources", "", nil, []int{follower}},
		{"GET", "/sets/SET/audit", "", nil, []int{follower}},
		{"POST", "/sets/SET/audit", "{}", nil, []int{follower}},
		{"GET", "/sets/SET/capabilitylist.xml", "", nil, []int{follower}},
		{"GET", "/sets/SET/changelist.xml", "", nil, []int{follower}},
		{"GET", "/sets/SET/changelist-1.xml", "", nil, []int{follower}},
		{"GET", "/sets/SET/resourcelist.xml", "", nil, []int{follower}},
		{"GET", "/sets/SET/resourcesync.xml", "", nil, []int{follower}},
		{"GET", "/sets/SET/description.xml", "", nil, []int{follower}},
		{"GET", "/sets/SET/nothing", "", nil, []int{follower}},
		{"GET", "/sets/SET/subscriptions", "", nil, []int{operator}},
		{"GET", "/sets/SET/subscriptions/x", "", nil, []int{operator}},
		{"PUT", "/sets/SET", `{"title":"mine"}`, nil, []int{publisher}},
		{"PUT", "/sets/SET", `nonsense`, nil, []int{publisher}},
		{"POST", "/sets/SET/changes", "nonsense", []string{"Content-Type", "application/json"}, []int{publisher}},
		{"POST", "/hub", "nonsense", []string{"Content-Type", "application/json", "Link", `<` + h.URL + `/sets/SET/changes>; rel="self", <` + h.URL + `/hub>; rel="hub"`}, []int{publisher}},
		{"POST", "/hub", "hub.mode=subscribe&hub.topic=" + h.URL + "/sets/SET/changes&hub.callback=http://127.0.0.1:1/", form, []int{follower}},
		{"POST", "/hub", "hub.mode=unsubscribe&hub.topic=" + h.URL + "/sets/SET/changes&hub.callback=https://example.org/", form, []int{follower}},
		{"POST", "/hub", "hub.mode=publish&hub.topic=" + h.URL + "/sets/SET/changes", form, []int{publisher}},
		{"DELETE", "/sets/SET/changes", "", nil, nil},
		{"PATCH", "/sets/SET", "", nil, nil},
		{"DELETE", "/sets/SET", "", nil, []int{operator}},
	}
	ask := func(r request, set string, who int) string {
		t.Helper()
		headers := append(bearer(who), r.headers...)
		for i := range headers {
			headers[i] = strings.ReplaceAll(headers[i], "SET", set)
		}
		resp, body := running.Do(t, r.method, h.URL+strings.ReplaceAll(r.path, "SET", set), strings.ReplaceAll(r.body, "SET", set), headers...)
		return seen(resp, body, set)
	}
	for _, r := range all {
		for _, who := range []int{follower, publisher, other, operator, anyone, wrong} {
			if slices.Contains(r.may, who) {
				continue
			}
			// The names have the same length and the same answer to who may make either.
			hidden, absent := ask(r, "hidden", who), ask(r, "absent", who)
			if hidden != absent {
				t.Errorf("caller %d sees by %s %s %v that the set is there:\n%s\nand without it:\n%s", who, r.method, r.path, r.headers, hidden, absent)
			}
			if strings.Contains(hidden, "the hidden one") {
				t.Errorf("caller %d sees the title by %s %s", who, r.method, r.path)
			}
		}
	}
	// It is still there, and for who may follow it as any other.
	for _, who := range []int{owner, follower} {
		for _, path := range []string{"", "/changes?since=start", "/capabilitylist.xml", "/changelist.xml"} {
			if resp, body := running.Do(t, "GET", h.URL+"/sets/hidden"+path, "", bearer(who)...); resp.StatusCode != http.StatusOK {
				t.Errorf("caller %d at %s: %d %s", who, path, resp.StatusCode, body)
			}
		}
	}
	if resp, body := running.Do(t, "GET", h.URL+"/sets/shown/changes?since=start", ""); resp.StatusCode != http.StatusOK {
		t.Errorf("a public set: %d %s", resp.StatusCode, body)
	}

	// Whoever follows by nothing but anyone's rights is cut off when a set becomes private.
	ws, _, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(h.URL, "http")+"/sets/shown/changes?since=now", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer ws.Close()
	req, err := http.NewRequestWithContext(t.Context(), "GET", h.URL+"/sets/shown/changes?since=now", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "text/event-stream")
	events, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer events.Body.Close()
	if resp, body := running.Do(t, "PUT", h.URL+"/sets/shown", `{"private":true}`, bearer(owner)...); resp.StatusCode != http.StatusOK {
		t.Fatalf("PUT is answered %d %s", resp.StatusCode, body)
	}
	for err == nil {
		_, _, err = ws.ReadMessage()
	}
	if !websocket.IsCloseError(err, 4401) {
		t.Errorf("the WebSocket ends with %v", err)
	}
	if _, err := io.Copy(io.Discard, events.Body); err != nil {
		t.Errorf("the event stream ends with %v", err)
	}
}

// A hub without tokens shows everything to everybody, so nothing is private there.
func TestPrivateWithoutTokens(t *testing.T) {
	h := start(t, Config{})
	resp, body := running.Do(t, "PUT", h.URL+"/sets/demo", `{"private":true}`)
	if detail := checkProblem(t, resp, body, http.StatusBadRequest, "invalid"); !strings.Contains(detail, "RSHUB_TOKENS_FILE") {
		t.Errorf("the detail is %q", detail)
	}
}

// Where sets are configured, who may publish by nothing but anyone's rights does not find out
// which of them are private; elsewhere not by what makes no set.
func TestPrivateToPublishers(t *testing.T) {
	file, texts := running.Tokens("publish:*,follow:*,operate", "follow:other")
	known, err := access.ReadTokens(strings.NewReader(file + "anyone - follow:*,publish:*\n"))
	if err != nil {
		t.Fatal(err)
	}
	configured, open := start(t, Config{Callers: known, Sets: []string{"hidden", "shown"}}), start(t, Config{Callers: known})
	for _, h := range []*started{configured, open} {
		owner := []string{"Authorization", "Bearer " + texts[0]}
		h.Publish("hidden", owner...)
		if resp, body := running.Do(t, "PUT", h.URL+"/sets/hidden", `{"title":"the hidden one","private":true,"changelist":"https://example.org/list.xml"}`, owner...); resp.StatusCode != http.StatusOK {
			t.Fatalf("PUT is answered %d %s", resp.StatusCode, body)
		}
		form, lines := []string{"Content-Type", "application/x-www-form-urlencoded"}, []string{"Content-Type", "application/x-ndjson"}
		link := []string{"Content-Type", "application/json", "Link", `<` + h.URL + `/sets/SET/changes>; rel="self", <` + h.URL + `/hub>; rel="hub"`}
		type request struct {
			method, path, body string
			headers            []string
		}
		all := []request{
			{"POST", "/hub", "hub.mode=publish&hub.topic=" + h.URL + "/sets/SET/changes", form}, // makes no set
			{"POST", "/sets/SET/changes", running.OneChange, []string{"Content-Type", "application/json"}},
			{"POST", "/sets/SET/changes", "nonsense", []string{"Content-Type", "application/json"}},
			{"POST", "/sets/SET/changes", "nonsense", []string{"Content-Type", "text/plain"}},
			{"POST", "/sets/SET/changes", "", []string{"Content-Type", "application/json"}},
			{"POST", "/sets/SET/changes", `{"loc":"https://example.org/a","change":"updated"}`, lines},
			{"POST", "/hub", running.OneChange, link},
			{"POST", "/hub", "nonsense", link},
			{"PUT", "/sets/SET", `{"title":"mine"}`, nil},
			{"PUT", "/sets/SET", `{"complete":true}`, nil},
			{"PUT", "/sets/SET", `nonsense`, nil},
			{"GET", "/sets/SET", "", nil},
			{"GET", "/sets/SET/changes?since=now", "", []string{"Accept", "text/event-stream"}},
			{"DELETE", "/sets/SET", "", nil},
		}
		if h == open {
			all = all[:1]
		}
		for _, r := range all {
			for _, who := range [][]string{nil, {"Authorization", "Bearer " + texts[1]}} {
				ask := func(set string) string {
					headers := append(who[:len(who):len(who)], r.headers...)
					for i := range headers {
						headers[i] = strings.ReplaceAll(headers[i], "SET", set)
					}
					resp, body := running.Do(t, r.method, h.URL+strings.ReplaceAll(r.path, "SET", set), strings.ReplaceAll(r.body, "SET", set), headers...)
					return seen(resp, body, set)
				}
				if hidden, absent := ask("hidden"), ask("absent"); hidden != absent {
					t.Errorf("by %s %s %q of %v it is seen that the set is there:\n%s\nand without it:\n%s", r.method, r.path, r.body, who, hidden, absent)
				}
			}
		}
	}
}
