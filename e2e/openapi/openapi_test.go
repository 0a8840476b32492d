// Package openapi validates the responses of the hub against its OpenAPI document, and checks that
// the hub can return every documented response.
package openapi

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"iter"
	"maps"
	"mime"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pb33f/libopenapi"
	validator "github.com/pb33f/libopenapi-validator"
	"github.com/pb33f/libopenapi-validator/config"
	v3 "github.com/pb33f/libopenapi/datamodel/high/v3"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

func TestMain(m *testing.M) { hubtest.Main(m) }

// A document is the OpenAPI document of a hub, with the observed responses.
type document struct {
	*v3.Document
	validator validator.Validator
	seen      map[string]bool // by key
}

// common are headers that any response may have, and headers of net/http.
var common = []string{
	"Access-Control-Allow-Origin", "Access-Control-Expose-Headers", "Connection", "Content-Encoding", "Content-Security-Policy", "Cross-Origin-Resource-Policy",
	"Referrer-Policy", "X-Accel-Buffering", "X-Content-Type-Options",
	"Sec-Fetch-Dest", "Sec-Websocket-Accept", "Sec-Websocket-Key", "Sec-Websocket-Protocol", "Sec-Websocket-Version", "Upgrade",
}

// readDocument reads the document of a hub and validates it as OpenAPI 3.1.
func readDocument(t *testing.T, h *hubtest.Hub) *document {
	t.Helper()
	parsed, err := libopenapi.NewDocument(hubtest.Must(t, http.StatusOK, http.MethodGet, h.URL+"/openapi.json", nil).Body)
	if err != nil {
		t.Fatal(err)
	}
	model, err := parsed.BuildV3Model()
	if err != nil {
		t.Fatal(err)
	}
	v, errs := validator.NewValidator(parsed, config.WithFormatAssertions(), config.WithStrictMode(), config.WithStrictIgnoredHeadersExtra(common...))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	if ok, errs := v.ValidateDocument(); !ok {
		t.Errorf("ValidateDocument() = %v", errs)
	}
	if got := model.Model.Servers[0].URL; got != h.URL || model.Model.Version != "3.1.0" {
		t.Errorf("got OpenAPI %s of %s, want 3.1.0 of %s", model.Model.Version, got, h.URL)
	}
	return &document{&model.Model, v, map[string]bool{}}
}

// operations yields method, path template and operation.
func (d *document) operations() iter.Seq2[[2]string, *v3.Operation] {
	return func(yield func([2]string, *v3.Operation) bool) {
		for path, item := range d.Paths.PathItems.FromOldest() {
			for method, op := range item.GetOperations().FromOldest() {
				if !yield([2]string{strings.ToUpper(method), path}, op) {
					return
				}
			}
		}
	}
}

var braces = regexp.MustCompile(`\\\{[a-z]+\\\}`)

// find returns the operation of a URL and its path template. The template with the fewest
// parameters wins.
func (d *document) find(method, url string) (template string, op *v3.Operation) {
	path, _, _ := strings.Cut(url, "?")
	for id, o := range d.operations() {
		pattern := "^" + braces.ReplaceAllString(regexp.QuoteMeta(id[1]), "[^/]+") + "$"
		if id[0] == method && regexp.MustCompile(pattern).MatchString(path) && (op == nil || strings.Count(id[1], "{") < strings.Count(template, "{")) {
			template, op = id[1], o
		}
	}
	return template, op
}

// A request is a request with its expected status. Headers are separated by |. A body "TOO LARGE"
// means six megabytes.
type request struct {
	status                     int
	method, url, headers, body string
}

// requests reads testdata/NAME.txt and replaces its variables, such as HUB for the URL of a hub.
func requests(t *testing.T, name string, variables ...string) (all []request) {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name + ".txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(strings.NewReplacer(variables...).Replace(string(text))) {
		if strings.TrimSpace(line) == "" || line[0] == '#' {
			continue
		}
		var r request
		if _, err := fmt.Sscanf(line, "%d %s %s %q %q", &r.status, &r.method, &r.url, &r.headers, &r.body); err != nil {
			t.Fatalf("testdata/%s.txt: %s: %v", name, line, err)
		}
		all = append(all, r)
	}
	return all
}

// send makes a request, and returns the response with at most the first event of a stream.
func send(t *testing.T, base string, r request) (*http.Request, *http.Response, []byte) {
	t.Helper()
	if r.body == "TOO LARGE" {
		r.body = strings.Repeat(" ", 6<<20)
	}
	req, err := http.NewRequestWithContext(t.Context(), r.method, base+r.url, strings.NewReader(r.body))
	if err != nil {
		t.Fatal(err)
	}
	for header := range strings.SplitSeq(r.headers, "|") {
		if name, value, ok := strings.Cut(header, ": "); ok {
			req.Header.Add(name, value)
		}
	}
	if r.body != "" && req.Header.Get("Content-Type") == "" {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Accept-Encoding", "identity")
	req.Host = req.Header.Get("Host") // empty means the host of the URL
	resp, err := hubtest.Client.Do(req)
	if err != nil {
		t.Fatalf("%s %s: %v", r.method, r.url, err)
	}
	defer resp.Body.Close()
	var body []byte
	switch {
	case resp.StatusCode == http.StatusSwitchingProtocols || r.method == http.MethodHead:
	case resp.Header.Get("Content-Type") == "text/event-stream":
		body, err = bufio.NewReader(resp.Body).ReadBytes('\n')
	default:
		body, err = io.ReadAll(resp.Body)
	}
	if err != nil {
		t.Errorf("%s %s: %v", r.method, r.url, err)
	}
	req.Body, resp.Body = io.NopCloser(strings.NewReader(r.body)), io.NopCloser(bytes.NewReader(body))
	return req, resp, body
}

// key identifies a documented response.
func key(method, template string, status any, mediaType string) string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %v %s", method, template, status, mediaType))
}

// check makes a request and validates the response against the document: status, media type, headers
// and body. It also validates an accepted request, and repeats a GET as a HEAD.
func (d *document) check(t *testing.T, base string, r request) {
	t.Helper()
	template, op := d.find(r.method, r.url)
	if op == nil {
		t.Fatalf("found no %s %s in the document", r.method, r.url)
	}
	if r.status == http.StatusNotModified {
		_, resp, _ := send(t, base, r)
		r.headers += "|If-None-Match: " + resp.Header.Get("ETag")
	}
	req, resp, body := send(t, base, r)
	about := fmt.Sprintf("%s %s %q: got %d %.300q", r.method, r.url, r.headers, resp.StatusCode, body)
	if resp.StatusCode != r.status {
		t.Errorf("%s, want %d", about, r.status)
	}
	documented := op.Responses.FindResponseByCode(resp.StatusCode)
	if documented == nil {
		t.Errorf("%s: undocumented status", about)
		return
	}
	mediaType, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if has := documented.Content != nil && documented.Content.GetOrZero(mediaType) != nil; !has && (mediaType != "" || documented.Content != nil) {
		t.Errorf("%s: undocumented media type %q", about, mediaType)
	}
	d.seen[key(r.method, template, resp.StatusCode, "")], d.seen[key(r.method, template, resp.StatusCode, mediaType)] = true, true
	if ok, errs := d.validator.ValidateHttpResponse(req, resp); !ok && resp.StatusCode != http.StatusSwitchingProtocols {
		t.Errorf("%s: %v", about, errs)
	}
	if resp.StatusCode < http.StatusBadRequest {
		if ok, errs := d.validator.ValidateHttpRequest(req); !ok {
			t.Errorf("%s: the document does not allow the request: %v", about, errs)
		}
	}
	if r.method == http.MethodGet && req.Header.Get("Upgrade") == "" {
		r.method = http.MethodHead
		if _, head, _ := send(t, base, r); head.StatusCode != resp.StatusCode || head.Header.Get("Content-Type") != resp.Header.Get("Content-Type") {
			t.Errorf("%s, and for HEAD %d %s", about, head.StatusCode, head.Header.Get("Content-Type"))
		}
	}
}

// checkRoutes checks that the document has each route of internal/server/site.go, with its query
// parameters, their limits, and its methods.
func (d *document) checkRoutes(t *testing.T, base string, samples map[string]request) {
	source, err := os.ReadFile("../../internal/server/site.go")
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	routes := regexp.MustCompile(`mux\.handle\("([^"]+)"`).FindAllStringSubmatch(string(source), -1)
	hubPaths := regexp.MustCompile(`hubPaths = \[\]string\{.*\}`).FindString(string(source))
	routes = append(routes, regexp.MustCompile(`"([^"]+)"`).FindAllStringSubmatch(hubPaths, -1)...)
	for _, m := range routes {
		mux.HandleFunc(m[1], http.NotFound)
	}
	documented := map[string]map[string]bool{} // parameters by route
	urls := map[string]string{}                // a path by route
	for id, op := range d.operations() {
		path, _, _ := strings.Cut(samples[id[0]+id[1]].url, "?")
		_, route := mux.Handler(httptest.NewRequest(id[0], path, nil))
		if route == "/" {
			t.Errorf("%s is not routed", id[1])
		}
		if urls[route] = path; documented[route] == nil {
			documented[route] = map[string]bool{}
		}
		for _, p := range op.Parameters {
			if p.In != "query" {
				continue
			}
			documented[route][p.Name] = true
			if schema := p.Schema.Schema(); id[0] == http.MethodGet {
				checkBound(t, base+path+"?"+p.Name, schema.Minimum, -1)
				checkBound(t, base+path+"?"+p.Name, schema.Maximum, 1)
			}
		}
	}
	allowed := regexp.MustCompile(`unknown parameter .*, want ([^"\n]+)["\n]`)
	for _, m := range routes {
		if documented[m[1]] == nil && m[1] != "/" {
			t.Errorf("got no path %s in the document, want one", m[1])
			continue
		}
		want, refused := slices.Sorted(maps.Keys(documented[m[1]])), false
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			_, _, body := send(t, base, request{method: method, url: urls[m[1]] + "?2=1"})
			if !bytes.Contains(body, []byte("unknown parameter")) || m[1] == "/" {
				continue
			}
			refused = true
			names := allowed.FindSubmatch(body)
			if names == nil {
				t.Errorf("%s %s: got %q, want the allowed parameters", method, m[1], body)
				continue
			}
			got := strings.Split(strings.TrimPrefix(string(names[1]), "none"), ", ")
			slices.Sort(got)
			if strings.Join(got, ",") != strings.Join(want, ",") {
				t.Errorf("parameters of %s = %q, want %q as in the document", m[1], got, want)
			}
		}
		if !refused && len(want) > 0 && m[1] != "/.well-known/resourcesync" { // ignores unknown parameters
			t.Errorf("%s accepts unknown parameters, want only %q", m[1], want)
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
		url, _, _ := strings.Cut(samples[methods[0]+path].url, "?")
		_, resp, _ := send(t, base, request{method: http.MethodPatch, url: url})
		if got, want := resp.Header.Get("Allow"), strings.Join(methods, ", "); resp.StatusCode != http.StatusMethodNotAllowed || got != want {
			t.Errorf("PATCH %s: got %d, Allow %q, want 405, %q", path, resp.StatusCode, got, want)
		}
	}
}

// checkBound checks that a parameter accepts its limit, if it has one, but not the next number.
func checkBound(t *testing.T, parameter string, bound *float64, step int) {
	for _, beyond := range []int{0, step} {
		if bound == nil {
			return
		}
		r := request{method: http.MethodGet, url: fmt.Sprintf("%s=%d", parameter, int(*bound)+beyond)}
		if _, resp, _ := send(t, "", r); (resp.StatusCode == http.StatusBadRequest) != (beyond != 0) {
			t.Errorf("GET %s = %d, want 400 only beyond the limit", r.url, resp.StatusCode)
		}
	}
}

// checkSeen checks that each documented status was observed, and each media type of a success.
func (d *document) checkSeen(t *testing.T) {
	for id, op := range d.operations() {
		for status, response := range op.Responses.Codes.FromOldest() {
			if status == "500" || status == "408" { // no request causes a 500, and a timeout takes a minute
				continue
			}
			keys := []string{key(id[0], id[1], status, "")}
			if status < "4" && response.Content != nil {
				for mediaType := range response.Content.KeysFromOldest() {
					keys = append(keys, key(id[0], id[1], status, mediaType))
				}
			}
			for _, k := range keys {
				if !d.seen[k] {
					t.Errorf("no request got %s", k)
				}
			}
		}
	}
}

func TestDocument(t *testing.T) {
	t.Parallel()
	h := hubtest.StartHub(t, "RSHUB_CALLBACK_ALLOW=127.0.0.0/8", "RSHUB_CHANGELIST_SIZE=5", "RSHUB_MAX_BODY=100000")
	d := readDocument(t, h)
	callback, statuses := startCallback(t)
	samples := map[string]request{} // the first request of each operation
	all := requests(t, "open", fill(t, h, callback, statuses)...)
	for _, r := range all {
		if template, _ := d.find(r.method, r.url); samples[r.method+template].url == "" {
			samples[r.method+template] = r
		}
	}
	d.checkRoutes(t, h.URL, samples) // before requests remove what it reads
	for _, r := range all {
		d.check(t, h.URL, r)
	}
	d.checkPrivate(t, callback, statuses)
	d.checkRefusals(t, h, samples)
	d.checkSeen(t)
}

// startCallback starts a callback that confirms, and sends the status URLs of its subscriptions.
func startCallback(t *testing.T) (url string, statuses chan string) {
	statuses = make(chan string, 100)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if q := r.URL.Query(); r.Method == http.MethodGet && q.Has("hub.challenge") {
			select {
			case statuses <- q.Get("rs.status"):
			default:
			}
			fmt.Fprint(w, q.Get("hub.challenge"))
		}
	}))
	t.Cleanup(s.Close)
	return s.URL, statuses
}

// subscribe subscribes a callback to a set, and returns the last segment of its status URL.
func subscribe(t *testing.T, h *hubtest.Hub, set, callback string, statuses chan string, headers ...string) string {
	t.Helper()
	headers = append(headers, "Content-Type: application/x-www-form-urlencoded")
	hubtest.Must(t, http.StatusAccepted, http.MethodPost, h.URL+"/hub", []byte("hub.mode=subscribe&hub.topic="+h.Topic(set)+"&hub.callback="+callback+"/a"), headers...)
	for url := range statuses {
		if status, ok := strings.CutPrefix(url, h.URL+"/subscriptions/"); ok { // skip other hubs
			hubtest.WaitOK(t, url)
			return status
		}
	}
	return ""
}

var listName = regexp.MustCompile(`changelist-[0-9a-z-]+\.xml`)

// fill publishes the data that the requests need, and returns their variables. It restarts the hub,
// because retention runs at the start.
func fill(t *testing.T, h *hubtest.Hub, callback string, statuses chan string) []string {
	t.Helper()
	lists := func(set string) []string {
		return listName.FindAllString(string(hubtest.Must(t, http.StatusOK, http.MethodGet, h.URL+"/sets/"+set+"/changelist-index.xml", nil).Body), -1)
	}
	hubtest.Publish(t, h, "demo", hubtest.Changes("x", 12))
	hubtest.Must(t, http.StatusOK, http.MethodPut, h.URL+"/sets/old", []byte(`{"inventory":"off"}`)) // otherwise retention waits for it
	first := hubtest.Publish(t, h, "old", hubtest.Changes("x", 1)).Cursor
	hubtest.Publish(t, h, "old", hubtest.Changes("y", 300))
	list := lists("old")[0]
	h.Stop(t)
	h.Start(t, "RSHUB_RETENTION_COUNT=100")
	hubtest.Until(t, "retention removed the first change", func() error {
		a, err := hubtest.Request(http.MethodGet, h.Topic("old")+"/1", nil)
		if err == nil && a.Status != http.StatusGone {
			err = fmt.Errorf("got %d", a.Status)
		}
		return err
	})
	name := func(list string) string { return strings.TrimSuffix(strings.TrimPrefix(list, "changelist-"), ".xml") }
	demo := lists("demo")
	newest, head := demo[len(demo)-1], hubtest.Head(t, h, "demo")
	position, _, _ := strings.Cut(head, "-")
	status := subscribe(t, h, "old", callback, statuses)
	id, _, _ := strings.Cut(status, ".")
	return []string{"HUB", h.URL, "CB", callback, "STATUS", status, "ID", id, "OLD", first, "LIST", list, "GONE", "page-" + name(list) + ".json",
		"NEW", newest, "PAGE", "page-" + name(newest) + ".json", "ARCHIVE", "atom-" + name(newest) + ".xml", "NOW", head, "POSITION", position}
}

// checkPrivate checks responses that depend on the caller, at a hub with tokens and a private set.
func (d *document) checkPrivate(t *testing.T, callback string, statuses chan string) {
	file := filepath.Join(t.TempDir(), "tokens")
	operator := "Authorization: Bearer " + hubtest.NewToken(t, file, "operator", "operate,publish:*,follow:*")
	before, _ := os.ReadFile(file)
	leaver := "Authorization: Bearer " + hubtest.NewToken(t, file, "leaver", "follow:*")
	all, _ := os.ReadFile(file)
	write := func(text []byte) {
		if err := os.WriteFile(file, append(text, "anyone - follow:*,publish:*\n"...), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(all)
	h := hubtest.StartHub(t, "RSHUB_TOKENS_FILE="+file, "RSHUB_CALLBACK_ALLOW=127.0.0.0/8")
	hubtest.Must(t, http.StatusOK, http.MethodPut, h.URL+"/sets/secret", []byte(`{"private":true}`), operator)
	hubtest.Publish(t, h, "demo", hubtest.Changes("x", 1), operator)
	hubtest.Must(t, http.StatusOK, http.MethodPut, h.URL+"/sets/demo", []byte(`{"complete":true,"sitemap":true}`), operator)
	id, _, _ := strings.Cut(subscribe(t, h, "demo", callback, statuses, leaver), ".")
	write(before)
	hubtest.Until(t, "the subscription has ended", func() error {
		if v := hubtest.Get[struct{ State string }](t, h.URL+"/sets/demo/subscriptions/"+id, operator); v.State != "ended" {
			return fmt.Errorf("got state %s", v.State)
		}
		return nil
	})
	other := "Authorization: Bearer " + hubtest.NewToken(t, file, "other", "follow:*")
	hubtest.Until(t, "the hub knows the token", func() error {
		a, err := hubtest.Request(http.MethodGet, h.URL+"/caller", nil, other)
		if err == nil && a.Status != http.StatusOK {
			err = fmt.Errorf("got %d", a.Status)
		}
		return err
	})
	for _, r := range requests(t, "private", "OPERATOR", operator, "OTHER", other, "ID", id) {
		d.check(t, h.URL, r)
	}
}

// checkRefusals checks the refusals of every operation, and the refusal of writes on a full disk.
func (d *document) checkRefusals(t *testing.T, h *hubtest.Hub, samples map[string]request) {
	file := filepath.Join(t.TempDir(), "tokens")
	hubtest.NewToken(t, file, "operator", "operate")
	known := hubtest.StartHub(t, "RSHUB_TOKENS_FILE="+file)
	limited := hubtest.StartHub(t, "RSHUB_TOKENS_FILE="+file, "RSHUB_LIMITS_ADDRESS=requests:1/d")
	full := hubtest.StartHub(t, "RSHUB_DISK_RESERVE=1000000GiB", "RSHUB_CALLBACK_ALLOW=127.0.0.0/8")
	starting := hubtest.NewHub(t, "RSHUB_REDIS_URL=redis://127.0.0.1:1", "RSHUB_START_TIMEOUT=1h", "RSHUB_INSECURE=anyone-may-publish")
	starting.Env = append(starting.Env, "RSHUB_BASE_URL="+starting.URL)
	starting.Process = hubtest.Start(t, starting.Env, nil, hubtest.Rshub)
	hubtest.Until(t, "a hub without Redis responds", func() error { _, err := hubtest.Request(http.MethodGet, starting.URL, nil); return err })
	_, _ = hubtest.Request(http.MethodGet, limited.URL, nil)
	for _, sample := range samples {
		for _, c := range []struct {
			status        int
			base, headers string
		}{
			{http.StatusUnauthorized, known.URL, "|Authorization: Bearer wrong"},
			{http.StatusForbidden, h.URL, "|Origin: https://evil.example"},
			{http.StatusMisdirectedRequest, h.URL, "|Host: evil.example"},
			{http.StatusRequestHeaderFieldsTooLarge, h.URL, "|X-Large: " + strings.Repeat("a", 33<<10)},
			{http.StatusTooManyRequests, limited.URL, ""},
			{http.StatusServiceUnavailable, starting.URL, ""},
		} {
			r := sample
			r.status, r.headers = c.status, r.headers+c.headers
			d.check(t, c.base, r)
		}
		if _, op := d.find(sample.method, sample.url); op.Responses.Codes.GetOrZero("507") != nil {
			r := sample
			if r.status = http.StatusInsufficientStorage; !strings.HasPrefix(r.url, "/sets/") && !strings.HasPrefix(r.url, "/rdm/") {
				r.headers = strings.ReplaceAll(`Link: <HUB/sets/demo/changes>; rel="self", <HUB/hub>; rel="hub"|Content-Type: application/json`, "HUB", full.URL)
				r.body = `{"changes":[{"loc":"https://example.org/a","change":"updated"}]}`
			}
			d.check(t, full.URL, r)
		}
	}
}
