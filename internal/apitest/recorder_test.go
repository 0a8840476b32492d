package apitest

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

const tiny = `{"openapi":"3.1.0","info":{"title":"a","version":"1"},
"paths":{"/a/{b}":{"parameters":[{"name":"b","in":"path","required":true,"schema":{"type":"string"}}],"get":{"responses":{"200":{"description":"good",
 "headers":{"X-Needed":{"required":true,"schema":{"type":"integer"}}},
 "content":{"application/json":{"schema":{"$ref":"#/components/schemas/A"}},"application/x-ndjson":{"schema":{"type":"string"},"x-items":{"$ref":"#/components/schemas/A"}},"text/event-stream":{"schema":{"type":"string"},"x-items":{"$ref":"#/components/schemas/A"}}}}}}}},
"x-otherwise":{"public":{"responses":{"404":{"description":"nothing","content":{"text/plain":{"schema":{"type":"string"}}}}}}},
"components":{"schemas":{"A":{"type":"object","required":["a"],"properties":{"a":{"type":"integer"}}}}}}`

// An answer that is not as it is described is found.
func TestCheck(t *testing.T) {
	d := Parse(t, []byte(tiny))
	for _, test := range []struct {
		name, method, url string
		status            int
		mediaType, body   string
		needed            string
		wrong             string // empty: nothing
	}{
		{"good", "GET", "/a/x", 200, "application/json", `{"a":1}`, "1", ""},
		{"HEAD", "HEAD", "/a/x", 200, "application/json", "", "1", ""},
		{"lines", "GET", "/a/x", 200, "application/x-ndjson", "{\"a\":1}\n{\"a\":2}\n", "1", ""},
		{"events", "GET", "/a/x", 200, "text/event-stream", "retry: 1\nid: 1\ndata: {\"a\":1}\n\n:\n", "1", ""},
		{"nothing there", "GET", "/b", 404, "text/plain; charset=utf-8", "none", "", ""},
		{"a method", "PUT", "/a/x", 200, "application/json", `{"a":1}`, "1", "200 is not described"},
		{"a path", "GET", "/a/x/y", 200, "application/json", `{"a":1}`, "1", "200 is not described"},
		{"a status", "GET", "/a/x", 201, "application/json", `{"a":1}`, "1", "201 is not described"},
		{"a media type", "GET", "/a/x", 200, "application/xml", `{"a":1}`, "1", "application/xml"},
		{"no media type", "GET", "/a/x", 200, "", "", "1", "Content-Type"},
		{"no header", "GET", "/a/x", 200, "application/json", `{"a":1}`, "", "X-Needed is missing"},
		{"a header", "GET", "/a/x", 200, "application/json", `{"a":1}`, "x", "X-Needed"},
		{"a member", "GET", "/a/x", 200, "application/json", `{"a":1,"b":2}`, "1", "additional"},
		{"no member", "GET", "/a/x", 200, "application/json", `{}`, "1", "missing"},
		{"no JSON", "GET", "/a/x", 200, "application/json", `{`, "1", "EOF"},
		{"a line", "GET", "/a/x", 200, "application/x-ndjson", "{\"a\":1}\n{\"b\":2}\n", "1", "additional"},
		{"an event", "GET", "/a/x", 200, "text/event-stream", "data: {\"b\":1}\n\n", "1", "additional"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := &Recorder{document: d, caused: map[string]bool{}, wrong: map[string]bool{}}
			h := r.Handler(Public, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				for name, value := range map[string]string{"Content-Type": test.mediaType, "X-Needed": test.needed} {
					if value != "" {
						w.Header().Set(name, value)
					}
				}
				w.WriteHeader(test.status)
				_, _ = w.Write([]byte(test.body))
			}))
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(test.method, test.url, nil))
			if (len(r.wrong) == 0) != (test.wrong == "") {
				t.Fatalf("it finds %v, want %q", r.wrong, test.wrong)
			}
			for w := range r.wrong {
				if !strings.Contains(w, test.wrong) {
					t.Errorf("it finds %q, want %q", w, test.wrong)
				}
			}
			if caused := len(r.Caused()) == 1; caused != (test.wrong == "" && test.method != "HEAD") {
				t.Errorf("it notes %q", r.Caused())
			}
		})
	}
	if all := strings.Join(d.Answers(), "\n"); !strings.Contains(all, "public GET /a/{b}: 200 text/event-stream\npublic otherwise: 404 text/plain") {
		t.Errorf("the answers are %s", all)
	}
}
