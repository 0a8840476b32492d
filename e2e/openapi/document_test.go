package openapi

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"iter"
	"maps"
	"mime"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pb33f/libopenapi"
	validator "github.com/pb33f/libopenapi-validator"
	"github.com/pb33f/libopenapi-validator/config"
	v3 "github.com/pb33f/libopenapi/datamodel/high/v3"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// A document is the OpenAPI document of a hub, and which of its answers were caused.
type document struct {
	*v3.Document
	validator validator.Validator
	caused    map[string]bool // by key
}

// said are the headers that every answer may have, and those of net/http.
var said = []string{
	"Access-Control-Allow-Origin", "Access-Control-Expose-Headers", "Connection", "Content-Encoding", "Content-Security-Policy", "Cross-Origin-Resource-Policy",
	"Referrer-Policy", "X-Accel-Buffering", "X-Content-Type-Options",
	"Sec-Fetch-Dest", "Sec-Websocket-Accept", "Sec-Websocket-Key", "Sec-Websocket-Protocol", "Sec-Websocket-Version", "Upgrade",
}

// read reads the document of a hub, and validates it as OpenAPI 3.1.
func read(t *testing.T, h *hubtest.Hub) *document {
	t.Helper()
	text := hubtest.Must(t, http.StatusOK, http.MethodGet, h.URL+"/openapi.json", nil).Body
	parsed, err := libopenapi.NewDocument(text)
	if err != nil {
		t.Fatal(err)
	}
	model, err := parsed.BuildV3Model()
	if err != nil {
		t.Fatal(err)
	}
	check, errs := validator.NewValidator(parsed, config.WithFormatAssertions(), config.WithStrictMode(), config.WithStrictIgnoredHeadersExtra(said...))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	if ok, errs := check.ValidateDocument(); !ok {
		for _, err := range errs {
			t.Errorf("the document is no OpenAPI 3.1: %v", err)
		}
	}
	if url := model.Model.Servers[0].URL; url != h.URL || model.Model.Version != "3.1.0" {
		t.Errorf("it is OpenAPI %s of %s", model.Model.Version, url)
	}
	return &document{&model.Model, check, map[string]bool{}}
}

// operations yields each path, each of its methods, and the operation.
func (d *document) operations() iter.Seq2[[2]string, *v3.Operation] {
	return func(yield func([2]string, *v3.Operation) bool) {
		for path, item := range d.Paths.PathItems.FromOldest() {
			for method, op := range item.GetOperations().FromOldest() {
				if !yield([2]string{path, strings.ToUpper(method)}, op) {
					return
				}
			}
		}
	}
}

// find returns the operation of a request, and its path in the document.
func (d *document) find(method, path string) (template string, op *v3.Operation) {
	for id, o := range d.operations() {
		if id[1] == method && match(id[0], path) && (op == nil || strings.Count(id[0], "{") < strings.Count(template, "{")) {
			template, op = id[0], o // a path with less in braces counts first
		}
	}
	return template, op
}

var braces = regexp.MustCompile(`\\\{[a-z]+\\\}`)

func match(template, path string) bool {
	return regexp.MustCompile("^" + braces.ReplaceAllString(regexp.QuoteMeta(template), "[^/]+") + "$").MatchString(path)
}

// An answer is what a hub answers.
type answer struct {
	*http.Response
	body []byte
}

// send makes a request. Of what does not end it reads the beginning.
func send(t *testing.T, method, url string, body io.Reader, headers ...string) (*http.Request, *answer) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Add(name, value)
	}
	if r.Header.Get("Accept-Encoding") == "" {
		r.Header.Set("Accept-Encoding", "identity") // net/http asks for gzip, but not with HEAD
	}
	r.Host = r.Header.Get("Host") // empty: that of the URL
	resp, err := hubtest.Client.Do(r)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	defer resp.Body.Close()
	a := &answer{Response: resp}
	switch {
	case resp.StatusCode == http.StatusSwitchingProtocols || method == http.MethodHead:
	case resp.Header.Get("Content-Type") == "text/event-stream":
		a.body, err = bufio.NewReader(resp.Body).ReadBytes('\n')
	default:
		a.body, err = io.ReadAll(resp.Body)
	}
	if err != nil {
		t.Errorf("%s %s: %v", method, url, err)
	}
	return r, a
}

// key names an answer that the document has.
func key(method, template string, status int, mediaType string) string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %d %s", method, template, status, mediaType))
}

// exchange makes a request, and holds the answer against the document: its status, its media
// type, its headers and its body; and the request, if it is not refused. It repeats a GET as HEAD.
func (d *document) exchange(t *testing.T, method, base, path, body string, headers ...string) *answer {
	t.Helper()
	template, op := d.find(method, strings.SplitN(path, "?", 2)[0])
	if op == nil {
		t.Fatalf("the document does not have %s %s", method, path)
	}
	r, a := send(t, method, base+path, strings.NewReader(body), headers...)
	about := fmt.Sprintf("%s %s %q is answered %d %q", method, path, headers, a.StatusCode, a.body[:min(len(a.body), 300)])
	response := op.Responses.FindResponseByCode(a.StatusCode)
	if response == nil {
		t.Errorf("%s: the document does not have the status", about)
		return a
	}
	mediaType, _, _ := mime.ParseMediaType(a.Header.Get("Content-Type"))
	has := response.Content != nil && response.Content.GetOrZero(mediaType) != nil
	if !has && (mediaType != "" || response.Content != nil) {
		t.Errorf("%s: the document does not have %q", about, mediaType)
	}
	d.caused[key(method, template, a.StatusCode, "")] = true
	d.caused[key(method, template, a.StatusCode, mediaType)] = true
	copied := *a.Response
	copied.Body = io.NopCloser(bytes.NewReader(a.body))
	r.Body = io.NopCloser(strings.NewReader(body))
	if ok, errs := d.validator.ValidateHttpResponse(r, &copied); !ok && a.StatusCode != http.StatusSwitchingProtocols {
		t.Errorf("%s: %v", about, errs)
	}
	if a.StatusCode < http.StatusBadRequest {
		if ok, errs := d.validator.ValidateHttpRequest(r); !ok {
			t.Errorf("%s, and the document refuses the request: %v", about, errs)
		}
	}
	if method == http.MethodGet && r.Header.Get("Upgrade") == "" {
		_, head := send(t, http.MethodHead, base+path, nil, headers...)
		if head.StatusCode != a.StatusCode || head.Header.Get("Content-Type") != a.Header.Get("Content-Type") {
			t.Errorf("%s, but a HEAD is answered %d %s", about, head.StatusCode, head.Header.Get("Content-Type"))
		}
	}
	return a
}

// routes returns a mux with the patterns of server/site.go, and those patterns.
func routes(t *testing.T) (mux *http.ServeMux, patterns []string) {
	t.Helper()
	source, err := os.ReadFile("../../server/site.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`mux\.handle\("([^"]+)"`).FindAllSubmatch(source, -1) {
		patterns = append(patterns, string(m[1]))
	}
	hub := regexp.MustCompile(`hubPaths = \[\]string\{(.*)\}`).FindSubmatch(source)
	for _, m := range regexp.MustCompile(`"([^"]+)"`).FindAllSubmatch(hub[1], -1) {
		patterns = append(patterns, string(m[1]))
	}
	mux = http.NewServeMux()
	for _, p := range patterns {
		mux.HandleFunc(p, http.NotFound)
	}
	return mux, patterns
}

// checkRoutes checks that the document has each URL that is routed, and no other, each parameter
// that a URL takes, with its bounds, and each method. sample has a URL of each operation.
func checkRoutes(t *testing.T, d *document, base string, sample map[[2]string]string) {
	mux, patterns := routes(t)
	taken := map[string]map[string]bool{} // parameters, by pattern
	one := map[string]string{}            // a URL, by pattern
	for id, op := range d.operations() {
		path := strings.SplitN(sample[id], "?", 2)[0]
		_, pattern := mux.Handler(httptest.NewRequest(id[1], path, nil))
		if pattern == "/" {
			t.Errorf("%s is not routed", id[0])
		}
		if taken[pattern] == nil {
			taken[pattern] = map[string]bool{}
		}
		one[pattern] = path
		for _, p := range op.Parameters {
			if p.In != "query" {
				continue
			}
			taken[pattern][p.Name] = true
			for _, bound := range []struct {
				of *float64
				by int
			}{{p.Schema.Schema().Minimum, -1}, {p.Schema.Schema().Maximum, 1}} {
				for _, beyond := range []int{0, bound.by} {
					if bound.of == nil || id[1] != http.MethodGet {
						continue
					}
					url := fmt.Sprintf("%s%s?%s=%d", base, path, p.Name, int(*bound.of)+beyond)
					if _, a := send(t, id[1], url, nil); (a.StatusCode == http.StatusBadRequest) != (beyond != 0) {
						t.Errorf("GET %s is answered %d", url, a.StatusCode)
					}
				}
			}
		}
	}
	says := regexp.MustCompile(`unknown parameter .* which takes ([a-z, -]+)["\n]`)
	for _, pattern := range patterns {
		if pattern == "/" {
			continue
		}
		if taken[pattern] == nil {
			t.Errorf("the document does not have %s", pattern)
			continue
		}
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			_, a := send(t, method, base+one[pattern]+"?2=1", nil)
			m := says.FindSubmatch(a.body)
			if m == nil {
				continue
			}
			names := strings.Split(strings.Replace(string(m[1]), "none", "", 1), ", ")
			if want := slices.Sorted(maps.Keys(taken[pattern])); strings.Join(slices.Sorted(slices.Values(names)), ",") != strings.Join(want, ",") {
				t.Errorf("%s takes %q, and the document has %q", pattern, names, want)
			}
		}
	}
	for path, item := range d.Paths.PathItems.FromOldest() {
		var methods []string
		for method := range item.GetOperations().KeysFromOldest() {
			if methods = append(methods, strings.ToUpper(method)); method == "get" {
				methods = append(methods, http.MethodHead)
			}
		}
		slices.Sort(methods)
		_, a := send(t, http.MethodPatch, base+strings.SplitN(sample[[2]string{path, methods[0]}], "?", 2)[0], nil)
		if want := strings.Join(methods, ", "); a.StatusCode != http.StatusMethodNotAllowed || a.Header.Get("Allow") != want {
			t.Errorf("PATCH %s is answered %d with Allow: %s, want %s", path, a.StatusCode, a.Header.Get("Allow"), want)
		}
	}
}

// checkCaused checks that each status of each operation was caused, and each media type of those
// that are no errors, but what is in without.
func (d *document) checkCaused(t *testing.T, without func(id [2]string, status string) string) {
	operations, statuses := 0, 0
	for id, op := range d.operations() {
		operations++
		for status, response := range op.Responses.Codes.FromOldest() {
			reason := without(id, status)
			var code int
			_, _ = fmt.Sscan(status, &code)
			keys := []string{key(id[1], id[0], code, "")}
			if code < http.StatusBadRequest && code != http.StatusNotModified {
				if response.Content != nil {
					for mediaType := range response.Content.KeysFromOldest() {
						keys = append(keys, key(id[1], id[0], code, mediaType))
					}
				}
			}
			for _, k := range keys {
				switch {
				case !d.caused[k] && reason == "":
					t.Errorf("nothing caused %s", k)
				case d.caused[k] && reason != "":
					t.Errorf("%s was caused, though %s", k, reason)
				}
			}
			if reason == "" {
				statuses++
			}
		}
	}
	t.Logf("%d operations, %d statuses were caused", operations, statuses)
}

// silent publishes, and sends no more than a part of its body. So it is answered 408, in a minute.
func (d *document) silent(t *testing.T, h *hubtest.Hub, path string) {
	conn, err := net.Dial("tcp", h.Host)
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Minute))
	r := httptest.NewRequest(http.MethodPost, h.URL+path, nil)
	links := fmt.Sprintf(`Link: <%s>; rel="self", <%s/hub>; rel="hub"`, h.Topic("demo"), h.URL) // for the URL of the hub
	mediaType, begin := "application/json", "{"
	if path == "/rdm/incoming" {
		mediaType, begin = "application/x-rdm", rdm("rd-response", "demo")
	}
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: %s\r\nContent-Length: 999\r\n%s\r\n\r\n%s", path, h.Host, mediaType, links, begin)
	resp, err := http.ReadResponse(bufio.NewReader(conn), r)
	if err != nil {
		t.Errorf("a silent publisher gets %v", err)
		return
	}
	defer resp.Body.Close()
	if ok, errs := d.validator.ValidateHttpResponse(r, resp); !ok || resp.StatusCode != http.StatusRequestTimeout {
		t.Errorf("a silent publisher is answered %d: %v", resp.StatusCode, errs)
	}
}
