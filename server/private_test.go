package server

import (
	"net/http"
	"strings"
	"testing"

	"github.com/rshub/rshub/access"
	"github.com/rshub/rshub/internal/servertest"
)

// A hub without tokens shows everything to everybody, so nothing is private there.
func TestPrivateWithoutTokens(t *testing.T) {
	h := start(t, Config{})
	if detail := h.refuses(http.StatusBadRequest, "invalid", "PUT", "/sets/demo", `{"private":true}`); !strings.Contains(detail, "RSHUB_TOKENS_FILE") {
		t.Errorf("the detail is %q", detail)
	}
}

// Where sets are configured, who may publish by nothing but anyone's rights does not find out
// which of them are private. For other hubs TestMatrix says so.
func TestPrivateToPublishers(t *testing.T) {
	t.Parallel()
	file, texts := servertest.Tokens("publish:*,follow:*,operate", "follow:other")
	known, err := access.ReadTokens(strings.NewReader(file + "anyone - follow:*,publish:*\n"))
	if err != nil {
		t.Fatal(err)
	}
	h := start(t, Config{Callers: known, Sets: []string{"hidden", "shown"}})
	owner := bearer(texts[0])
	h.Publish("hidden", owner...)
	h.describes("hidden", `{"title":"the hidden one","private":true,"changelist":"https://example.org/list.xml"}`, owner...)
	form, lines := []string{"Content-Type", "application/x-www-form-urlencoded"}, []string{"Content-Type", "application/x-ndjson"}
	link := []string{"Content-Type", "application/json", "Link", `<` + h.URL + `/sets/SET/changes>; rel="self", <` + h.URL + `/hub>; rel="hub"`}
	type request struct {
		method, path, body string
		headers            []string
	}
	for _, r := range []request{
		{"POST", "/hub", "hub.mode=publish&hub.topic=" + h.URL + "/sets/SET/changes", form}, // makes no set
		{"POST", "/sets/SET/changes", servertest.OneChange, []string{"Content-Type", "application/json"}},
		{"POST", "/sets/SET/changes", "nonsense", []string{"Content-Type", "application/json"}},
		{"POST", "/sets/SET/changes", "nonsense", []string{"Content-Type", "text/plain"}},
		{"POST", "/sets/SET/changes", "", []string{"Content-Type", "application/json"}},
		{"POST", "/sets/SET/changes", `{"loc":"https://example.org/a","change":"updated"}`, lines},
		{"POST", "/hub", servertest.OneChange, link},
		{"POST", "/hub", "nonsense", link},
		{"PUT", "/sets/SET", `{"title":"mine"}`, nil},
		{"PUT", "/sets/SET", `{"complete":true}`, nil},
		{"PUT", "/sets/SET", `nonsense`, nil},
		{"GET", "/sets/SET", "", nil},
		{"GET", "/sets/SET/changes?since=now", "", []string{"Accept", "text/event-stream"}},
		{"DELETE", "/sets/SET", "", nil},
	} {
		for _, who := range [][]string{nil, {"Authorization", "Bearer " + texts[1]}} {
			ask := func(set string) string {
				headers := append(who[:len(who):len(who)], r.headers...)
				for i := range headers {
					headers[i] = strings.ReplaceAll(headers[i], "SET", set)
				}
				resp, body := servertest.Do(t, r.method, h.URL+strings.ReplaceAll(r.path, "SET", set), strings.ReplaceAll(r.body, "SET", set), headers...)
				return seen(resp, body, set)
			}
			if hidden, absent := ask("hidden"), ask("absent"); hidden != absent {
				t.Errorf("by %s %s %q of %v it is seen that the set is there:\n%s\nand without it:\n%s", r.method, r.path, r.body, who, hidden, absent)
			}
		}
	}
}
