package server

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gorilla/websocket"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rshub/rshub/feed/compressed"
	"github.com/rshub/rshub/internal/apitest"
	"github.com/rshub/rshub/internal/running"
	"github.com/rshub/rshub/internal/until"
	"github.com/rshub/rshub/openapi"
	"github.com/rshub/rshub/rdm"
)

// apiDocument keeps the description of the API for all tests, because it takes long to read.
var apiDocument struct {
	sync.Once
	*apitest.Document
}

// theAPI returns the description of the API.
func theAPI(t *testing.T) *apitest.Document {
	t.Helper()
	apiDocument.Do(func() { apiDocument.Document = apitest.Parse(t, openapi.Document("v1.2.3", "http://127.0.0.1")) })
	if apiDocument.Document == nil {
		t.Fatal("the description of the API is not good")
	}
	return apiDocument.Document
}

// samplePath returns a path of the description with a value for each of its parameters.
func samplePath(path string) string {
	return strings.NewReplacer("{set}", "demo", "{version}", "1", "{name}", "main.js", "{id}", "aaaaaaaaaaaaaaaaaaaaaaaaaa",
		"{begin}", "1700000000000000", "{n}", "1", "{cursor}", "1-1700000000000000", "{profile}", "goroutine").Replace(path)
}

// Each route is described, and nothing else.
func TestAPIRoutes(t *testing.T) {
	router := newRouter(prometheus.NewRegistry(), nil)
	(&site{}).routes(router)
	ops := (&ops{health: newHealth(), metrics: prometheus.NewRegistry(), callers: &callers{}, log: slog.New(slog.DiscardHandler)}).routes()
	described := map[string]map[string]bool{apitest.Public: {}, apitest.Operations: {}}
	for _, o := range theAPI(t).Operations() {
		handler := router.Handler
		if o.Address == apitest.Operations {
			handler = ops.Handler
		}
		_, pattern := handler(httptest.NewRequest(o.Method, samplePath(o.Path), nil))
		if described[o.Address][pattern] = true; pattern == "" || pattern == "/" {
			t.Errorf("%s %s is described, and not served at the %s address", o.Method, o.Path, o.Address)
		}
	}
	for _, pattern := range slices.Concat(slices.Collect(maps.Keys(router.counters)), ops.patterns) {
		if pattern != "/" && !described[apitest.Public][pattern] && !described[apitest.Operations][pattern] {
			t.Errorf("%s is served, and not described", pattern)
		}
	}
}

var takenParameters = regexp.MustCompile(`of this URL, which takes ([a-z, -]*)["\n]`)

// The parameters that a URL takes are described, and no others.
func TestAPIParameters(t *testing.T) {
	h := start(t, Config{RDM: true, Robots: true})
	h.Publish("demo")
	all, checked := map[string][]string{}, 0
	for _, o := range theAPI(t).Operations() {
		if o.Address == apitest.Public {
			all[o.Path] = append(all[o.Path], o.Query...)
		}
	}
	for path, described := range all {
		_, body := running.Do(t, "GET", h.URL+samplePath(path)+"?qqqqqqqqqqqqqq=1", "")
		var taken []string
		if m := takenParameters.FindStringSubmatch(body); m != nil && m[1] != "none" {
			taken = strings.Split(m[1], ", ")
		}
		checked += len(taken)
		slices.Sort(taken)
		slices.Sort(described)
		if !slices.Equal(taken, slices.Compact(described)) {
			t.Errorf("%s takes %q, and %q are described", path, taken, described)
		}
	}
	if checked < 20 {
		t.Errorf("only %d parameters were found", checked)
	}
}

// notCaused lists the answers that this test does not cause, and why.
var notCaused = []struct{ answers, why string }{
	{`: 500 `, "only a fault of the hub causes it"},
	{`/changes: 408 |/hub: 408 |/incoming: 408 `, "the hub waits for minutes; package hub causes it"},
	{`GET /rdm/incoming: 413 `, "more must be ordered than the hub holds; package rdm causes it"},
	{`/rdm/incoming: 503 application/problem`, "there must be too many connections"},
	{`/changelist-{begin}-{n}.xml: 410 |/atom-{begin}-{n}.xml: 410 |/changeset-{begin}-{n}.xml: 410 |/activity/page-{begin}-{n}.json: 410 `, "retention must have removed the list, or the page; package documents causes it"},
	{`/hub: 507 text/plain`, "only a Redis without room refuses a request to subscribe"},
}

// apiRows are requests besides siteRows that cause further answers, to a hub that knows
// everything of a set.
var apiRows = []row{
	{method: "GET", url: "/page/VERSION/style.css"},
	{method: "GET", url: "/page/VERSION/favicon.svg"},
	{method: "GET", url: "/dictionaries/other"},
	{method: "GET", url: "/subscriptions/STATUS", headers: asPage},
	{method: "GET", url: "/sets/SET/.well-known/resourcesync"},
	{method: "GET", url: "/sets/SET/changes?since=start", headers: []string{"Accept", "application/x-ndjson"}},
	{method: "GET", url: "/sets/SET/changes?since=start", headers: []string{"Accept", "application/cloudevents-batch+json"}},
	{method: "GET", url: "/sets/SET/changes?since=start", headers: []string{"Accept-Encoding", "zstd"}},
	{method: "GET", url: "/sets/SET/changes?since=start", headers: []string{"Accept-Encoding", "dcz", "Available-Dictionary", compressed.Available()}},
	{method: "GET", url: "/sets/SET/changelist.xml", headers: []string{"Accept-Encoding", "zstd"}},
	{method: "GET", url: "/sets/SET/changes?since=start", headers: []string{"Accept", "*/*;q=0"}},
	{method: "GET", url: "/sets/SET/changes?since=1-1"},
	{method: "GET", url: "/sets/SET/changes", headers: []string{"Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA=="}},
	{method: "GET", url: "/sets/SET/framework?since=start", headers: []string{"Accept", "application/x-ndjson"}},
	{method: "GET", url: "/sets/SET/framework?since=start", headers: []string{"Accept", "application/cloudevents-batch+json"}},
	{method: "GET", url: "/sets/SET/framework?since=start", headers: []string{"Accept", "*/*;q=0"}},
	{method: "GET", url: "/sets/SET/framework?since=1-1"},
	{method: "GET", url: "/sets/SET/framework", headers: []string{"Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA=="}},
	{method: "POST", url: "/sets/SET/changes", body: aPage, headers: append([]string{"Idempotency-Key", "a key"}, asJSON...)},
	{method: "POST", url: "/sets/SET/changes", body: "{\"changes\":[" + aLine + "," + aLine + "]}", headers: append([]string{"Idempotency-Key", "a key"}, asJSON...)},
	{method: "POST", url: "/sets/SET/changes", body: "{\"loc\":\"urn:x:" + strings.Repeat("a", 2<<20) + "\"}", headers: asNDJSON},
	{method: "POST", url: "/hub", body: aPage, headers: slices.Concat(asJSON, links, []string{"Idempotency-Key", "another key"})},
	{method: "POST", url: "/hub", body: anXML, headers: slices.Concat(asXML, links, []string{"Idempotency-Key", "another key"})},
	{method: "POST", url: "/hub", body: "{\"loc\":\"urn:x:" + strings.Repeat("a", 2<<20) + "\"}", headers: slices.Concat(asNDJSON, links)},
	{method: "POST", url: "/hub", body: "a=" + strings.Repeat("a", 100<<10), headers: asForm},
	{method: "POST", url: "/hub", body: aPage, headers: slices.Concat(asText, links)},
	{method: "POST", url: "/hub", body: "hub.mode=subscribe&hub.callback=CALLBACK/SET/x&rs.since=1-1" + topicField, headers: asForm},
	{method: "GET", url: "/sets/SET/resources", headers: []string{"Accept", "*/*;q=0"}},
	{method: "GET", url: "/sets/SET/resources?at=1-1"},
	{method: "GET", url: "/sets/SET/audit?from=1-1"},
	{method: "POST", url: "/sets/SET/audit", body: question("1-1"), headers: asJSON},
	{method: "POST", url: "/sets/SET/audit", body: question("HEAD"), headers: asJSON},
	{method: "POST", url: "/sets/SET/audit", body: strings.Repeat(" ", 6<<20), headers: asJSON},
	{method: "POST", url: "/subscriptions/STATUS", body: holding("1-1"), headers: asJSON},
	{method: "POST", url: "/subscriptions/STATUS", body: holding("HEAD"), headers: asJSON},
	{method: "POST", url: "/subscriptions/STATUS", body: "{}", headers: asJSON},
	{method: "POST", url: "/subscriptions/STATUS", body: strings.Repeat(" ", 20<<10), headers: asJSON},
	{method: "PUT", url: "/sets/SET", body: strings.Repeat(" ", 20<<10), headers: asJSON},
	{method: "PUT", url: "/sets/SET/subscriptions/ID/cursor", body: strings.Repeat(" ", 20<<10), headers: asJSON},
	{method: "PUT", url: "/sets/SET/subscriptions/ID/cursor", body: `{"cursor":"1-1"}`, headers: asJSON},
	{method: "GET", url: "/rdm/incoming?type=rd-request-deleted&ql=gatherer&scope=since+1994-11-06&csid=SET"},
	{method: "POST", url: "/rdm/incoming", body: strings.Replace(strings.Replace(askedRDM, "rd-request", "rd-request-deleted", 1), "all", "since 1994-11-06", 1), headers: asRDM},
	{method: "POST", url: "/rdm/incoming", body: headOfRDM + strings.Repeat("a", 2<<20), headers: asRDM},
	{method: "POST", url: "/rdm/incoming", body: sentRDM, headers: slices.Concat(asRDM, []string{"Idempotency-Key", "a third key"})},
	{method: "POST", url: "/rdm/incoming", body: strings.Replace(sentRDM, "\tA", "\tB", 1), headers: slices.Concat(asRDM, []string{"Idempotency-Key", "a third key"})},
	{method: "GET", url: "/sets/SET/LIST", headers: []string{"If-None-Match", "*"}},
	{method: "GET", url: "/sets/SET/FEED", headers: []string{"If-None-Match", "*"}},
	{method: "GET", url: "/sets/SET/EVENTS", headers: []string{"If-None-Match", "*"}},
	{method: "GET", url: "/sets/SET/PAGE", headers: []string{"If-None-Match", "*"}},
	{method: "GET", url: "/sets//SET"},
	{method: "OPTIONS", url: "/sets/SET", headers: []string{"Origin", "HUB"}},
	{method: "PATCH", url: "/sets/SET"},
	{method: "PATCH", url: "/sets/_"},
	{method: "GET", url: "/sets/SET/nothing.xml", headers: asPage},
	{method: "GET", url: "/sets/SET/archive/nothing.xml", headers: asPage},
	{method: "GET", url: "/sets/SET/content/nothing.xml", headers: asPage},
}

var asPage = []string{"Accept", "text/html", "User-Agent", "Mozilla/5.0"}

func holding(at string) string {
	return `{"at":"` + at + `","count":0,"position":"00000000000000000000000000000000"}`
}

func question(at string) string {
	return `{"at":"` + at + `","by":"position","ranges":[{"from":null,"to":null,"count":0,"digest":"00000000000000000000000000000000"}]}`
}

// The messages of a WebSocket are as they are described.
func TestAPIMessages(t *testing.T) {
	h := start(t, Config{})
	h.Publish("demo")
	until.Done(t, "there is an inventory", func() bool {
		resp, _ := running.Do(t, "GET", h.URL+"/sets/demo/resources", "")
		return resp.StatusCode == http.StatusOK
	})
	for _, since := range []string{"start", "baseline"} {
		ws, _, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(h.URL, "http")+"/sets/demo/changes?since="+since, nil)
		if err != nil {
			t.Fatal(err)
		}
		for n, begun := 0, false; !begun || n < 2; n++ { // the first message of all says where it begins, and the end of a baseline where it ends
			_, message, err := ws.ReadMessage()
			if err == nil {
				err = theAPI(t).Validate("/paths/~1sets~1{set}~1changes/get/responses/101/x-messages/rs.json/schema", string(message))
			}
			if err != nil {
				t.Fatalf("since=%s: %v: %s", since, err, message)
			}
			begun = begun || since == "start" || strings.Contains(string(message), `"baseline":false`)
		}
		ws.Close()
	}

	// So are the events of a stream that has taken over its connection, which start does not see.
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.URL+"/sets/demo/changes?since=start", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "text/event-stream")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for n := 0; n < 2; {
		if !lines.Scan() {
			t.Fatalf("the stream ended: %v", lines.Err())
		}
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		n++
		if err := theAPI(t).Validate("/paths/~1sets~1{set}~1changes/get/responses/200/content/text~1event-stream/x-items", data); err != nil {
			t.Errorf("%v: %s", err, data)
		}
	}
}

// Every answer that is described can be caused. start holds every answer that there is against
// the description.
func TestAPIAnswers(t *testing.T) {
	if testing.Short() {
		t.Skip("it causes thousands of answers; make whole does so without the race detector")
	}
	caused := map[string]bool{}
	for _, cause := range []func(t *testing.T) []*apitest.Recorder{causeOrdinary, causeRefused, causePrivate, causeStarting, causeFull, causeDumps, causeArchives} {
		for _, r := range cause(t) {
			for _, c := range r.Caused() {
				caused[c] = true
			}
		}
	}
	needed := map[string]bool{}
	for _, answer := range theAPI(t).Answers() {
		why := ""
		for _, n := range notCaused {
			if regexp.MustCompile(n.answers).MatchString(answer) {
				why = n.why
				needed[n.answers] = true
			}
		}
		if !caused[answer] && why == "" {
			t.Errorf("it is described, and nothing causes it: %s", answer)
		}
		if caused[answer] && why != "" {
			t.Errorf("it is caused: %s, although %s", answer, why)
		}
	}
	for _, n := range notCaused {
		if !needed[n.answers] {
			t.Errorf("nothing is described as %q", n.answers)
		}
	}
}

// samples returns a request for each operation at an address, or two where the answer depends
// on the body. Headers are added to each.
func samples(t *testing.T, address string, headers ...string) (rows []row) {
	for _, o := range theAPI(t).Operations() {
		r := row{method: o.Method, url: samplePath(o.Path), headers: headers}
		switch {
		case o.Address != address:
			continue
		case o.Path == rdm.Path && o.Method == "POST":
			r.body, r.headers = sized(strings.ReplaceAll(sentRDM, "SET", "demo")), slices.Concat(asRDM, headers)
		case o.Path == rdm.Path:
			r.url += "?type=rd-request&ql=gatherer&scope=all&csid=demo"
		case o.Path == "/hub" && o.Method == "POST":
			form := r
			form.body, form.headers = "hub.mode=subscribe&hub.topic=HUB/sets/demo/changes&hub.callback=CALLBACK/x", slices.Concat(asForm, headers)
			rows = append(rows, form)
			r.body, r.headers = aPage, slices.Concat(asJSON, []string{"Link", `<HUB/sets/demo/changes>; rel="self", <HUB/hub>; rel="hub"`}, headers)
		case strings.HasSuffix(o.Path, "/changes") && o.Method == "POST":
			r.body, r.headers = aPage, slices.Concat(asJSON, headers)
		case o.Path == "/sets/{set}" && o.Method == "PUT":
			r.body = `{"title":"A set"}`
		case strings.HasSuffix(o.Path, "/audit") && o.Method == "POST":
			r.body = question("1-1")
		}
		rows = append(rows, r)
	}
	return append(rows, row{method: "GET", url: "/nothing", headers: headers})
}

// causeOrdinary causes the answers to callers who may do everything.
func causeOrdinary(t *testing.T) []*apitest.Recorder {
	o := newOffice(t)
	once, alone := sync.Map{}, sync.Mutex{}
	m := &matrix{once: &once, alone: &alone, owner: "Bearer " + o.token(allRights)}
	m.open(t, Config{Callers: o.open(t, ""), RDM: true, Robots: true})
	ask := func(address, set string, r row) {
		t.Helper()
		_, _ = m.do(t, address, &cell{row: r, authorized: m.owner, set: set})
	}
	m.make(t, "api-"+public)
	for _, r := range siteRows {
		if r.method == every {
			r.method = http.MethodGet
		}
		for _, set := range []string{"api-" + absent, "api-" + public} {
			if ask(m.URL, set, r); r.changes && set == "api-"+public || r.makes && r.absent == http.StatusOK {
				m.make(t, set)
			}
		}
	}
	m.publishMany(t)
	for _, r := range apiRows {
		r.url, r.body = strings.Replace(r.url, "VERSION", "1", 1), strings.Replace(r.body, "HEAD", m.head(t, "api-"+public), 1)
		ask(m.URL, "api-"+public, r)
	}
	for _, address := range []string{apitest.Public, apitest.Operations} {
		url := map[string]string{apitest.Public: m.URL, apitest.Operations: m.Ops}[address]
		for _, more := range [][]string{asPage, {"If-None-Match", "*"}, {"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"}} {
			for _, r := range samples(t, address, more...) {
				if r.long() || r.method != http.MethodGet && more[0] != "Sec-Fetch-Site" {
					continue
				}
				r.url = strings.ReplaceAll(r.url, "demo", "api-"+public)
				ask(url, "api-"+public, r)
			}
		}
		for _, r := range samples(t, address) {
			for _, path := range []string{strings.ReplaceAll(r.url, "demo", "_"), strings.ReplaceAll(r.url, "demo", absent), r.url + "?qqqqqqqqqqqqqq=1"} {
				if r.url = path; !r.long() {
					ask(url, "", r)
				}
			}
		}
	}
	for _, r := range slices.Concat(opsRows, []row{
		{method: "GET", url: "/debug/pprof/goroutine?debug=1"}, {method: "POST", url: "/debug/pprof/goroutine?debug=1"}, {method: "GET", url: "//backup"},
		{method: "PUT", url: "/backup"}, {method: "GET", url: "/metrics", headers: []string{"Accept", "application/openmetrics-text"}},
	}) {
		if r.method == every {
			r.method = http.MethodGet
		}
		ask(m.Ops, "", r)
	}
	m.Stop()
	return []*apitest.Recorder{m.answers}
}

// long reports whether a request for a profile takes long.
func (r *row) long() bool {
	return strings.HasSuffix(r.path(), "/profile") || strings.HasSuffix(r.path(), "/trace")
}

// publishMany publishes so many resources to a set that its Resource List has parts, and asks
// for one of these.
func (m *matrix) publishMany(t *testing.T) {
	t.Helper()
	var lines strings.Builder
	for i := range 50_001 {
		fmt.Fprintf(&lines, `{"loc":"urn:x:%d","change":"created"}`+"\n", i)
	}
	const set = "api-many"
	m.own(t, set, row{method: "POST", url: "/sets/SET/changes", there: 200, body: lines.String(), headers: asNDJSON})
	m.own(t, set, row{method: "PUT", url: "/sets/SET", there: 200, body: `{"complete":true}`})
	part := ""
	until.Done(t, "the Resource List has parts", func() bool {
		_, body := m.do(t, m.URL, &cell{row: row{method: "GET", url: "/sets/SET/resourcelist.xml"}, authorized: m.owner, set: set})
		part = regexp.MustCompile(`resourcelist-[^/]+\.xml`).FindString(body)
		return part != ""
	})
	m.own(t, set, row{method: "GET", url: "/sets/SET/" + part, there: 200})
	m.own(t, set, row{method: "GET", url: "/sets/SET/" + part, there: 304, headers: []string{"If-None-Match", "*"}})
}

// head returns the cursor of what a set holds.
func (m *matrix) head(t *testing.T, set string) string {
	t.Helper()
	_, body := m.do(t, m.URL, &cell{row: row{method: "GET", url: "/sets/SET/audit"}, authorized: m.owner, set: set})
	found := regexp.MustCompile(`"cursor":"([^"]*)"`).FindStringSubmatch(body)
	if found == nil {
		t.Fatalf("the audit is answered %s", body)
	}
	return found[1]
}

// askAll makes requests, without regard for their answers.
func askAll(t *testing.T, base string, rows []row) {
	t.Helper()
	for _, r := range rows {
		fill := strings.NewReplacer("HUB", base, "CALLBACK", "http://127.0.0.1:9").Replace
		var headers []string
		for _, h := range r.headers {
			headers = append(headers, fill(h))
		}
		running.Do(t, r.method, base+r.url, fill(r.body), headers...)
	}
}

// causeRefused causes the answers to callers who may do nothing, or too much at once.
func causeRefused(t *testing.T) []*apitest.Recorder {
	known, _ := tokens(t, "operate", "anyone - follow:* publish:*")
	limited := start(t, Config{Callers: known, AddressLimits: limits(t, "requests:1/h"), RDM: true})
	askAll(t, limited.URL, append([]row{{method: "GET", url: "/caller"}}, samples(t, apitest.Public)...))
	known, texts := tokens(t, "operate", "follow:*")
	closed := start(t, Config{Callers: known, RDM: true})
	for _, headers := range [][]string{nil, asPage, {"Authorization", "Bearer wrong"}} {
		askAll(t, closed.URL, samples(t, apitest.Public, headers...))
		askAll(t, closed.Ops, samples(t, apitest.Operations, headers...))
	}
	askAll(t, closed.Ops, samples(t, apitest.Operations, "Authorization", "Bearer "+texts[1]))
	askAll(t, closed.URL, []row{{method: "GET", url: "/sets/demo", headers: append([]string{"Authorization", "Bearer " + texts[0]}, asPage...)}})
	few := start(t, Config{Sets: []string{"one"}, RDM: true})
	askAll(t, few.URL, samples(t, apitest.Public))
	askAll(t, few.URL, samples(t, apitest.Public, "Host", "evil.example"))
	askAll(t, few.Ops, samples(t, apitest.Operations, "Host", "evil.example"))
	for _, h := range []*started{limited, closed, few} {
		h.Stop()
	}
	return []*apitest.Recorder{limited.answers, closed.answers, few.answers}
}

// causePrivate causes the answers about a set that has become private, to those who may not
// follow it, and about a subscription that has ended because of that.
func causePrivate(t *testing.T) []*apitest.Recorder {
	var status atomic.Value // the path of the subscription's status
	callback := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if at := strings.Index(r.URL.Query().Get("rs.status"), "/subscriptions/"); at >= 0 {
			status.Store(r.URL.Query().Get("rs.status")[at:])
		}
		_, _ = io.WriteString(w, r.URL.Query().Get("hub.challenge"))
	}))
	defer callback.Close()
	known, texts := tokens(t, "publish:* follow:* operate", "anyone - follow:*")
	h := start(t, Config{Callers: known, CallbackAllow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	owner := []string{"Authorization", "Bearer " + texts[0]}
	h.Publish("demo", owner...)
	running.Do(t, "POST", h.URL+"/hub", "hub.mode=subscribe&hub.topic="+h.URL+"/sets/demo/changes&hub.callback="+callback.URL, asForm...)
	id := ""
	seen := func(state string) func() bool {
		return func() bool {
			_, body := running.Do(t, "GET", h.URL+"/sets/demo/subscriptions", "", owner...)
			if found := regexp.MustCompile(`"id":"([^"]*)"`).FindStringSubmatch(body); found != nil {
				id = found[1]
			}
			return strings.Contains(body, `"state":"`+state+`"`)
		}
	}
	until.Done(t, "there is a subscription", seen("current"))
	ended, private := seen("ended"), false
	until.Done(t, "the subscription has ended", func() bool { // the hub must have seen it allowed, and then not allowed
		private = !private
		askAll(t, h.URL, []row{{method: "PUT", url: "/sets/demo", body: fmt.Sprintf(`{"private":%t}`, private), headers: owner}})
		return ended()
	})
	askAll(t, h.URL, []row{{method: "PUT", url: "/sets/demo", body: `{"private":true}`, headers: owner}})
	for _, r := range []row{
		{method: "POST", url: "/retry"}, {method: "PUT", url: "/cursor", body: `{"cursor":"now"}`}, {method: "GET", url: "/retry"},
	} {
		r.url, r.headers = "/sets/demo/subscriptions/"+id+r.url, owner
		askAll(t, h.URL, []row{r})
	}
	askAll(t, h.URL, []row{{method: "POST", url: status.Load().(string), body: holding("1-1")}})
	askAll(t, h.URL, samples(t, apitest.Public))
	h.Stop()
	return []*apitest.Recorder{h.answers}
}

// causeStarting causes the answers of a hub that waits for its memory, and of one whose memory
// is in Redis.
func causeStarting(t *testing.T) []*apitest.Recorder {
	s, err := New(Config{Listen: "127.0.0.1:0", RedisURL: "redis://127.0.0.1:1", BaseURL: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	all := theAPI(t).Watch(t)
	serve := func(address string, h http.Handler) string {
		server := httptest.NewServer(all.Handler(address, s.requests.logged(h, slog.LevelWarn)))
		t.Cleanup(server.Close)
		return server.URL
	}
	starting := s.errors.Handle(serveStarting)
	ops1 := newMux()
	s.health.routes(ops1)
	ops1.Handle("/", starting)
	askAll(t, serve(apitest.Public, starting), samples(t, apitest.Public))
	askAll(t, serve(apitest.Operations, ops1), samples(t, apitest.Operations))
	inRedis := &ops{health: s.health, metrics: s.metrics, backup: &backup{}, errors: s.errors, callers: s.callers, log: s.log}
	askAll(t, serve(apitest.Operations, inRedis.routes()), []row{{method: "GET", url: "/backup"}, {method: "POST", url: "/backup"}})
	return []*apitest.Recorder{all}
}

// causeFull causes the answers of a hub whose disk is full.
func causeFull(t *testing.T) []*apitest.Recorder {
	h := start(t, Config{RDM: true, DiskReserve: 1 << 60, CallbackAllow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	askAll(t, h.URL, samples(t, apitest.Public))
	h.Stop()
	return []*apitest.Recorder{h.answers}
}
