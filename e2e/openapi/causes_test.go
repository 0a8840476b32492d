package openapi

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// What hubs are asked for. The first request of an operation is its sample. In the texts HUB is
// the URL of the hub, CB that of a callback; ID and STATUS are of a subscription; OLD is a cursor,
// LIST a Change List, and BASE a Resource List that are gone; NEW and NOW are a list and a cursor.
const (
	asJSON  = "Content-Type: application/json"
	asLines = "Content-Type: application/x-ndjson"
	asXML   = "Content-Type: application/xml"
	asForm  = "Content-Type: application/x-www-form-urlencoded"
	asRDM   = "Content-Type: application/x-rdm"
	longAgo = "since+Sun,+06+Nov+1994+08:49:37+GMT"
	person  = "Accept: text/html|Sec-Fetch-Dest: document"
	html    = "Accept: text/html"
	lines   = "Accept: application/x-ndjson"
	xml     = "Accept: application/xml"
	links   = `Link: <HUB/sets/demo/changes>; rel="self", <HUB/hub>; rel="hub"|`
	upgrade = "Connection: Upgrade|Upgrade: websocket|Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==|Sec-WebSocket-Version: "
	line    = `{"loc":"https://example.org/a","change":"updated"}`
	page    = `{"changes":[` + line + `]}`
	urlset  = `<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/"><rs:md capability="change-notification"/>` +
		`<url><loc>https://example.org/x</loc><rs:md change="created"/></url></urlset>`
	event   = `{"specversion":"1.0","id":"1","source":"https://example.org/","type":"org.example.created","subject":"e"}`
	ask     = "&hub.topic=HUB/sets/demo/changes&hub.callback=CB/b"
	differ  = `{"at":"NOW","by":"position","ranges":[{"count":0,"digest":"7f9c9e31ac8256ca2f258583df262dbc"}]}`
	same    = `{"at":"NOW","by":"position","ranges":[{"from":"zz","to":"z{","count":0,"digest":"7f9c9e31ac8256ca2f258583df262dbc"}]}`
	tooMuch = "413" // stands for a body that is larger than any limit
)

// rdm returns the header of a message of RDM.
func rdm(kind, set string) string {
	return fmt.Sprintf("@RDMHEADER { -\nRDM-Version{3}:\t1.0\nRDM-Type{%d}:\t%s\nCatalog-Service-Id{%d}:\t%s\n}\n", len(kind), kind, len(set), set)
}

type row struct {
	status        int
	method, url   string
	headers, body string // headers are divided by |
}

// rows are requests to a hub on which everybody may do everything.
var rows = []row{
	{200, "GET", "/", html, ""},
	{200, "GET", "/page/any/main.js", "", ""},
	{200, "GET", "/page/any/style.css", "", ""},
	{200, "GET", "/page/any/favicon.svg", "", ""},
	{404, "GET", "/page/any/nothing", "", ""},
	{200, "GET", "/openapi.json", "", ""},
	{304, "GET", "/openapi.json", "", ""},
	{200, "GET", "/caller", "", ""},
	{200, "GET", "/activity", "", ""},
	{200, "GET", "/failures", "", ""},
	{200, "GET", "/sources", "", ""},
	{200, "GET", "/.well-known/resourcesync", "", ""},
	{200, "GET", "/.well-known/resourcesync", person, ""},
	{304, "GET", "/.well-known/resourcesync", "", ""},
	{400, "GET", "/.well-known/resourcesync?part=0", "", ""},
	{404, "GET", "/.well-known/resourcesync?part=9", "", ""},
	{404, "GET", "/robots.txt", "", ""},
	{400, "GET", "/robots.txt?2=1", "", ""},
	{200, "GET", "/subscriptions/STATUS", "", ""},
	{200, "GET", "/subscriptions/STATUS", html, ""},
	{404, "GET", "/subscriptions/ID.wrong", "", ""},

	{200, "GET", "/sets?limit=1&details=1", "", ""},
	{200, "GET", "/sets/demo?details=1&recent=2", "", ""},
	{200, "GET", "/sets/demo", html, ""},
	{200, "PUT", "/sets/demo", "", `{"title":"A","complete":true,"sitemap":true,"every":"1h","source":"CB/list"}`},
	{400, "PUT", "/sets/demo", "", `{"titel":"A"}`},
	{413, "PUT", "/sets/demo", "", tooMuch},
	{200, "PUT", "/sets/short", "", `{"lastmod":"datetime","push":"off","cloudevents":{"types":{"a":"none"},"change":"/op","loc":"https://example.org/{subject}"}}`},
	{400, "PUT", "/sets/short", "", `{"cloudevents":{"loc":"/items/{subject}"}}`},
	{204, "DELETE", "/sets/short", "", ""},

	{200, "GET", "/sets/demo/changes", "", ""},
	{200, "GET", "/sets/demo/changes", person, ""},
	{304, "GET", "/sets/demo/changes", "", ""},
	{200, "GET", "/sets/demo/changes?since=start&prefix=https://example.org/&change=created,updated&type=image/*&wait=1ms", "", ""},
	{200, "GET", "/sets/demo/changes?since=start", "", ""},
	{200, "GET", "/sets/demo/changes?since=start", lines, ""},
	{200, "GET", "/sets/demo/changes?since=start", "Accept: application/cloudevents-batch+json", ""},
	{406, "GET", "/sets/demo/changes?since=baseline", "Accept: application/cloudevents-batch+json", ""},
	{200, "GET", "/sets/demo/changes?since=baseline", "", ""},
	{200, "GET", "/sets/demo/changes?since=start", "Accept: text/event-stream", ""},
	{101, "GET", "/sets/demo/changes?since=start", upgrade + "13|Sec-WebSocket-Protocol: rs.xml", ""},
	{101, "GET", "/sets/demo/changes?since=start", upgrade + "13|Sec-WebSocket-Protocol: cloudevents.json", ""},
	{400, "GET", "/sets/demo/changes?since=nonsense", "", ""},
	{410, "GET", "/sets/old/changes?since=OLD", "", ""},
	{406, "GET", "/sets/demo/changes?since=now", "Accept: */*;q=0", ""},
	{426, "GET", "/sets/demo/changes", upgrade + "12", ""},
	{200, "POST", "/sets/demo/changes", asJSON, `{"changes":[{"loc":"https://example.org/y","change":"updated","hash":"md5:00000000000000000000000000000000","length":1,"type":"text/plain","ln":[{"rel":"duplicate","href":"https://example.org/z","pri":1}],"{http://a.b/}c":"d","datetime":"2026-01-02T03:04:05Z","lastmod":"2026-01-02T03:04:05Z"}]}`},
	{200, "POST", "/sets/demo/changes", asLines + "|Idempotency-Key: k", line},
	{200, "POST", "/sets/demo/changes", asXML, urlset},
	{204, "POST", "/sets/demo/changes", "Content-Type: application/cloudevents+json", event},
	{204, "POST", "/sets/demo/changes", "Content-Type: application/cloudevents-batch+json", "[" + event + "]"},
	{400, "POST", "/sets/demo/changes", "Content-Type: application/cloudevents+json", "{}"},
	{422, "POST", "/sets/demo/changes", asLines + "|Idempotency-Key: k", strings.Replace(line, "/a", "/b", 1)},
	{400, "POST", "/sets/demo/changes", asLines, line + "\nx\ny"},
	{413, "POST", "/sets/demo/changes", asJSON, tooMuch},
	{415, "POST", "/sets/demo/changes", "Content-Type: text/plain", page},
	{200, "GET", "/sets/demo/changes/POSITION", "", ""},
	{200, "GET", "/sets/demo/changes/POSITION", xml, ""},
	{200, "GET", "/sets/demo/changes/POSITION", person, ""},
	{304, "GET", "/sets/demo/changes/POSITION", "", ""},
	{404, "GET", "/sets/demo/changes/99999", "", ""},
	{410, "GET", "/sets/old/changes/1", "", ""},

	{200, "GET", "/sets/demo/resources?limit=1&after=https://&prefix=https://&at=NOW", "", ""},
	{200, "GET", "/sets/demo/resources?loc=https://example.org/y", lines, ""},
	{400, "GET", "/sets/demo/resources?at=nonsense", "", ""},
	{406, "GET", "/sets/demo/resources", "Accept: */*;q=0", ""},
	{410, "GET", "/sets/demo/resources?at=OLD", "", ""},
	{200, "GET", "/sets/demo/audit?from=NOW&prefix=https://", "", ""},
	{410, "GET", "/sets/demo/audit?from=OLD", "", ""},
	{200, "POST", "/sets/demo/audit?details=1", "", differ},
	{400, "POST", "/sets/demo/audit", "", "{}"},
	{410, "POST", "/sets/demo/audit", "", strings.Replace(differ, "NOW", "OLD", 1)},
	{413, "POST", "/sets/demo/audit", "", tooMuch},
	{200, "POST", "/sets/demo/ticket", "", `{"seconds":60}`},
	{400, "POST", "/sets/demo/ticket", "", "x"},
	{413, "POST", "/sets/demo/ticket", "", tooMuch},
	{200, "GET", "/sets/demo/activity", "", ""},
	{200, "GET", "/sets/demo/failures", "", ""},
	{200, "POST", "/sets/demo/audit?name=mirror", "", same},
	{200, "GET", "/sets/demo/proofs", "", ""},
	{200, "GET", "/sets/demo/requests", "", ""},

	{200, "GET", "/sets/demo/.well-known/resourcesync", "", ""},
	{200, "GET", "/sets/demo/capabilitylist.xml", "", ""},
	{200, "GET", "/sets/demo/changelist.xml", "", ""},
	{200, "GET", "/sets/demo/changelist-index.xml", "", ""},
	{200, "GET", "/sets/demo/resourcelist.xml", "", ""},
	{200, "GET", "/sets/demo/NEW", "", ""},
	{410, "GET", "/sets/demo/changelist.xml?from=2026-01-01", "", ""},
	{410, "GET", "/sets/old/LIST", "", ""},
	{200, "GET", "/sets/demo/ARCHIVE", "", ""},
	{200, "GET", "/sets/demo/atom.xml?after=NOW", "", ""},
	{400, "GET", "/sets/demo/atom.xml?after=nonsense", "", ""},
	{410, "GET", "/sets/old/atom.xml?after=OLD", "", ""},
	{200, "GET", "/sets/demo/changeset.xml?after=NOW", "", ""},
	{400, "GET", "/sets/demo/changeset.xml?after=nonsense", "", ""},
	{410, "GET", "/sets/old/changeset.xml?after=OLD", "", ""},
	{200, "GET", "/sets/demo/activity/collection.json", "", ""},
	{200, "GET", "/sets/demo/activity/PAGE", "", ""},
	{410, "GET", "/sets/old/activity/GONE", "", ""},

	{200, "GET", "/sets/old/subscriptions?limit=5&after=00000000000000000000000000000000", "", ""},
	{200, "GET", "/sets/old/subscriptions/ID", "", ""},
	{202, "POST", "/sets/old/subscriptions/ID/retry", "", ""},
	{202, "PUT", "/sets/old/subscriptions/ID/cursor", "", `{"cursor":"now"}`},
	{400, "PUT", "/sets/old/subscriptions/ID/cursor", "", "{}"},
	{410, "PUT", "/sets/old/subscriptions/ID/cursor", "", `{"cursor":"OLD"}`},
	{413, "PUT", "/sets/old/subscriptions/ID/cursor", "", tooMuch},
	{202, "DELETE", "/sets/old/subscriptions/ID", "", ""},

	{200, "GET", "/rdm/incoming?type=rd-request&ql=gatherer&scope=all&csid=demo&view-attributes=url&view-hits=3&view-order=-url", "", ""},
	{200, "GET", "/rdm/incoming?type=server-description-request", "", ""},
	{404, "GET", "/rdm/incoming?type=rd-request&scope=all&csid=none", "", ""},
	{410, "GET", "/rdm/incoming?type=rd-request-deleted&csid=old&scope=" + longAgo, "", ""},
	{200, "POST", "/rdm/incoming", asRDM, rdm("rd-response", "demo") + "@DOCUMENT { https://example.org/a\n}\n"},
	{200, "POST", "/rdm/incoming", asRDM + "|Content-Encoding: identity|Idempotency-Key: r", rdm("rd-response-deleted", "demo") + "@DOCUMENT { https://example.org/a\n}\n"},
	{422, "POST", "/rdm/incoming", asRDM + "|Idempotency-Key: r", rdm("rd-response-deleted", "demo") + "@DOCUMENT { https://example.org/b\n}\n"},
	{400, "POST", "/rdm/incoming", asRDM, rdm("rd-response", "demo") + "@DOCUMENT { -\n}\n"},
	{404, "POST", "/rdm/incoming", asRDM, rdm("status-request", "none")},
	{410, "POST", "/rdm/incoming", asRDM, rdm("rd-request-deleted", "old") + "@RDMQUERY { -\nScope{35}:\tsince Sun, 06 Nov 1994 08:49:37 GMT\n}\n"},
	{413, "POST", "/rdm/incoming", asRDM, tooMuch},
	{415, "POST", "/rdm/incoming", "Content-Type: text/plain", "x"},

	{200, "GET", "/hub", "", ""},
	{202, "POST", "/hub", asForm, "hub.mode=subscribe&hub.secret=s&hub.lease_seconds=300&rs.since=start&rs.every=1s&rs.prefix=https:&rs.change=created&rs.type=text/html" + ask},
	{204, "POST", "/hub", asForm, "hub.mode=publish&hub.topic=HUB/sets/demo/changes"},
	{200, "POST", "/hub", links + asJSON, page},
	{400, "POST", "/hub", asForm, "hub.mode=other"},
	{400, "POST", "/hub", asJSON, page},
	{404, "POST", "/hub", asForm, "hub.mode=publish&hub.topic=HUB/nothing"},
	{410, "POST", "/hub", asForm, "hub.mode=subscribe&rs.since=OLD" + strings.Replace(ask, "demo", "old", 1)},
	{413, "POST", "/hub", links + asJSON, tooMuch},
	{413, "POST", "/hub", asForm, tooMuch},
	{415, "POST", "/hub", "Content-Type: text/plain", page},
	{415, "POST", "/hub", links + "Content-Type: text/plain", page},
	{422, "POST", "/hub", links + asLines + "|Idempotency-Key: k", strings.Replace(line, "/a", "/b", 1)},
}

var ofSet = regexp.MustCompile("^/sets/(demo|old)(.*)")

// each returns rows, and a few that many operations have alike: an unknown parameter, a name that
// is none, a set or a subscription that is not there, and what documents answer.
func each(rows []row) []row {
	all := rows[:len(rows):len(rows)]
	add := func(status int, of row, url, headers string) {
		all = append(all, row{status, of.method, url, headers, of.body})
	}
	seen := map[string]bool{}
	for _, r := range rows {
		path, _, _ := strings.Cut(r.url, "?")
		if seen[r.method+path] || r.status >= http.StatusMultipleChoices {
			continue
		}
		seen[r.method+path] = true
		if strings.Contains(path, "xml") || strings.HasSuffix(path, "resourcesync") || strings.HasSuffix(path, "LIST") || strings.HasSuffix(path, "NEW") || strings.Contains(path, "/activity/") {
			if !inDialect.MatchString(path) {
				add(http.StatusOK, r, path, person)
			}
			add(http.StatusNotModified, r, path, "")
		}
		of, after := "", ""
		if m := ofSet.FindStringSubmatch(path); m != nil {
			of, after = m[1], m[2]
		}
		switch {
		case of != "":
			add(http.StatusBadRequest, r, "/sets/NONE"+after, r.headers)
			switch {
			case after == "/failures": // of any name there are none
			case after == "/changes", after == "/ticket", after == "/requests", r.method == http.MethodPut && after == "": // see who
			default:
				add(http.StatusNotFound, r, "/sets/none"+after, r.headers)
			}
		case path == "/hub":
			for _, other := range []string{"/publish", "/subscribe"} {
				for _, of := range rows {
					if of.url == path && of.method == r.method {
						add(of.status, of, other, of.headers)
					}
				}
			}
		case path == "/sets/short":
			add(http.StatusNotFound, row{method: http.MethodDelete}, path, "")
			add(http.StatusBadRequest, row{method: http.MethodDelete}, "/sets/NONE", "")
		case path != "/" && path != "/.well-known/resourcesync" && !strings.HasPrefix(path, "/page/") && !strings.HasPrefix(path, "/subscriptions/"):
			add(http.StatusBadRequest, r, path+"?2=1", "")
		}
	}
	return all
}

// The hub answers as the document says, and the document has no answer that the hub does not give.
func TestDocument(t *testing.T) {
	t.Parallel()
	h := hubtest.StartHub(t, "RSHUB_CALLBACK_ALLOW=127.0.0.0/8", "RSHUB_CHANGELIST_SIZE=5", "RSHUB_MAX_BODY=100000")
	d := read(t, h)
	callback := newCallback(t)
	fill := fill(t, h, callback)

	var late sync.WaitGroup // it takes a minute
	t.Cleanup(late.Wait)
	publishes := []string{"/sets/demo/changes", "/hub", "/publish", "/subscribe", "/rdm/incoming"}
	for _, path := range publishes {
		late.Go(func() { d.silent(t, h, path) })
	}

	sample, samples := map[[2]string]string{}, map[[2]string]row{}
	all := each(rows)
	for i := range all {
		r := &all[i]
		r.url, r.headers, r.body = fill(r.url), fill(r.headers), fill(r.body)
		template, _ := d.find(r.method, strings.SplitN(r.url, "?", 2)[0])
		if id := [2]string{template, r.method}; sample[id] == "" {
			sample[id], samples[id] = r.url, *r
		}
	}
	checkRoutes(t, d, h.URL, sample)
	for _, r := range all {
		d.cause(t, h.URL, r)
	}
	who(t, d, callback)
	always(t, d, h, samples)
	late.Wait()
	for _, path := range publishes {
		template, _ := d.find(http.MethodPost, path)
		d.caused[key(http.MethodPost, template, http.StatusRequestTimeout, "")] = true
	}
	d.checkCaused(t, func(id [2]string, status string) string {
		if status == "500" {
			return "no request makes a hub fail"
		}
		return ""
	})
}

// cause makes the request of a row.
func (d *document) cause(t *testing.T, base string, r row) {
	t.Helper()
	if r.body == tooMuch {
		r.body = strings.Repeat(" ", 6<<20)
	}
	var headers []string
	if r.headers != "" {
		headers = strings.Split(r.headers, "|")
	}
	if r.body != "" && !strings.Contains(r.headers, "Content-Type") {
		headers = append(headers, asJSON)
	}
	if r.status == http.StatusNotModified {
		_, a := send(t, r.method, base+r.url, nil, headers...)
		headers = append(headers, "If-None-Match: "+a.Header.Get("ETag"))
	}
	if a := d.exchange(t, r.method, base, r.url, r.body, headers...); a.StatusCode != r.status {
		t.Errorf("%s %s %q is answered %d, want %d: %.300s", r.method, r.url, headers, a.StatusCode, r.status, a.body)
	}
}

// callbacks confirm, and tell the URLs of the status that they were told.
type callbacks struct {
	*httptest.Server
	told chan string
}

func newCallback(t *testing.T) *callbacks {
	c := &callbacks{told: make(chan string, 100)}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if q := r.URL.Query(); r.Method == http.MethodGet && q.Has("hub.challenge") {
			select {
			case c.told <- q.Get("rs.status"):
			default:
			}
			fmt.Fprint(w, q.Get("hub.challenge"))
		}
	}))
	t.Cleanup(c.Close)
	return c
}

// subscribe has a callback subscribed, and returns the end of the URL of its status.
func (c *callbacks) subscribe(t *testing.T, h *hubtest.Hub, set string, headers ...string) (status string) {
	t.Helper()
	hubtest.Must(t, http.StatusAccepted, http.MethodPost, h.URL+"/hub", []byte("hub.mode=subscribe&hub.topic="+h.Topic(set)+"&hub.callback="+c.URL+"/a"), append(headers, asForm)...)
	for ended := time.After(hubtest.Patience); status == ""; {
		select {
		case url := <-c.told:
			status, _ = strings.CutPrefix(url, h.URL+"/subscriptions/")
			if status == url { // of another hub
				status = ""
			}
		case <-ended:
			t.Fatal("the callback was not asked")
		}
	}
	hubtest.Answers(t, h.URL+"/subscriptions/"+status)
	return status
}

// inDialect matches documents that no page shows.
var inDialect = regexp.MustCompile(`/activity/|atom|changeset|ARCHIVE`)

var listName = regexp.MustCompile(`changelist-[0-9a-z-]+\.xml`)

// fill makes a hub that has what rows ask for, and returns what puts it into their texts. The hub
// is started again, because retention works at the start.
func fill(t *testing.T, h *hubtest.Hub, c *callbacks) func(string) string {
	t.Helper()
	hubtest.Publish(t, h, "demo", hubtest.Changes("x", 12))
	hubtest.Must(t, http.StatusOK, http.MethodPut, h.URL+"/sets/old", []byte(`{"inventory":"off"}`)) // retention need not wait for it
	first := hubtest.Publish(t, h, "old", hubtest.Changes("x", 1)).Cursor
	hubtest.Publish(t, h, "old", hubtest.Changes("y", 300))
	index := h.URL + "/sets/old/changelist-index.xml"
	list := listName.FindString(string(hubtest.Must(t, http.StatusOK, http.MethodGet, index, nil).Body))
	h.Stop(t)
	h.Start(t, "RSHUB_RETENTION_COUNT=100")
	hubtest.Until(t, "retention removed the first change", func() error {
		a, err := hubtest.Request(http.MethodGet, h.Topic("old")+"/1", nil)
		if err == nil && a.Status != http.StatusGone {
			err = fmt.Errorf("it is answered %d", a.Status)
		}
		return err
	})
	of := func(list string) string { return strings.TrimSuffix(strings.TrimPrefix(list, "changelist-"), ".xml") }
	names := listName.FindAllString(string(hubtest.Must(t, http.StatusOK, http.MethodGet, h.URL+"/sets/demo/changelist-index.xml", nil).Body), -1)
	newest := names[len(names)-1]
	head := hubtest.Head(t, h, "demo")
	position, _, _ := strings.Cut(head, "-")
	status := c.subscribe(t, h, "old")
	id, _, _ := strings.Cut(status, ".")
	return strings.NewReplacer("HUB", h.URL, "CB", c.URL, "STATUS", status, "ID", id, "OLD", first, "LIST", list, "GONE", "page-"+of(list)+".json", "NEW", newest, "PAGE", "page-"+of(newest)+".json", "ARCHIVE", "atom-"+of(newest)+".xml", "NOW", head, "POSITION", position).Replace
}

// who causes what depends on the caller: answers about private sets, tickets with a token, and a
// subscription that ends with its token.
func who(t *testing.T, d *document, c *callbacks) {
	file := filepath.Join(t.TempDir(), "tokens")
	operator := "Authorization: Bearer " + hubtest.NewToken(t, file, "operator", "operate,publish:*,follow:*")
	kept, _ := os.ReadFile(file)
	leaver := "Authorization: Bearer " + hubtest.NewToken(t, file, "leaver", "follow:*")
	write := func(text []byte) {
		if err := os.WriteFile(file, append(text, "anyone - follow:*,publish:*\n"...), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	all, _ := os.ReadFile(file)
	write(all)
	h := hubtest.StartHub(t, "RSHUB_TOKENS_FILE="+file, "RSHUB_CALLBACK_ALLOW=127.0.0.0/8")
	hubtest.Must(t, http.StatusOK, http.MethodPut, h.URL+"/sets/secret", []byte(`{"private":true}`), operator)
	hubtest.Publish(t, h, "demo", hubtest.Changes("x", 1), operator)
	hubtest.Must(t, http.StatusOK, http.MethodPut, h.URL+"/sets/demo", []byte(`{"complete":true,"sitemap":true}`), operator)
	for _, r := range []row{
		{200, "GET", "/robots.txt", "", ""},
		{200, "GET", "/caller", operator, ""},
		{404, "PUT", "/sets/secret", "", "{}"},
		{404, "GET", "/sets/secret/changes", "", ""},
		{404, "POST", "/sets/secret/changes", asJSON, page},
		{404, "POST", "/sets/secret/ticket", "", ""},
		{404, "GET", "/sets/secret/requests", "", ""},
		{200, "POST", "/sets/secret/ticket", operator, `{"cookie":true}`},
		{200, "POST", "/sets/secret/ticket", operator, ""},
		{403, "GET", "/activity", leaver, ""},
	} {
		d.cause(t, h.URL, r)
	}
	id, _, _ := strings.Cut(c.subscribe(t, h, "demo", leaver), ".")
	write(kept)
	one := "/sets/demo/subscriptions/" + id
	hubtest.Until(t, "the subscription has ended", func() error {
		if v := hubtest.Get[struct{ State string }](t, h.URL+one, operator); v.State != "ended" {
			return fmt.Errorf("it is %s", v.State)
		}
		return nil
	})
	d.cause(t, h.URL, row{200, "GET", one, operator, ""})
	d.cause(t, h.URL, row{409, "POST", one + "/retry", operator, ""})
	d.cause(t, h.URL, row{409, "PUT", one + "/cursor", operator, `{"cursor":"now"}`})
}

// always causes what every operation answers, to its sample, and what writes answer without room.
func always(t *testing.T, d *document, h *hubtest.Hub, samples map[[2]string]row) {
	file := filepath.Join(t.TempDir(), "tokens")
	hubtest.NewToken(t, file, "operator", "operate")
	known := hubtest.StartHub(t, "RSHUB_TOKENS_FILE="+file)
	limited := hubtest.StartHub(t, "RSHUB_TOKENS_FILE="+file, "RSHUB_LIMITS_ADDRESS=requests:1/d")
	full := hubtest.StartHub(t, "RSHUB_DISK_RESERVE=1000000GiB", "RSHUB_CALLBACK_ALLOW=127.0.0.0/8")
	starting := hubtest.NewHub(t, "RSHUB_REDIS_URL=redis://127.0.0.1:1", "RSHUB_START_TIMEOUT=1h", "RSHUB_INSECURE=anyone-may-publish")
	starting.Env = append(starting.Env, "RSHUB_BASE_URL="+starting.URL)
	starting.Process = hubtest.Start(t, starting.Env, nil, hubtest.Rshub)
	hubtest.Until(t, "a hub without its Redis answers", func() error { _, err := hubtest.Request(http.MethodGet, starting.URL, nil); return err })
	_, _ = hubtest.Request(http.MethodGet, limited.URL, nil)
	for _, r := range samples {
		for _, c := range []struct {
			status  int
			base    string
			headers string
		}{
			{http.StatusUnauthorized, known.URL, "Authorization: Bearer wrong"},
			{http.StatusForbidden, h.URL, "Origin: https://evil.example"},
			{http.StatusMisdirectedRequest, h.URL, "Host: evil.example"},
			{http.StatusTooManyRequests, limited.URL, ""},
			{http.StatusServiceUnavailable, starting.URL, ""},
		} {
			r := r
			r.status, r.headers = c.status, strings.Trim(r.headers+"|"+c.headers, "|")
			d.cause(t, c.base, r)
		}
		_, op := d.find(r.method, strings.SplitN(r.url, "?", 2)[0])
		if op.Responses.Codes.GetOrZero("507") == nil {
			continue
		}
		if r.status = http.StatusInsufficientStorage; !strings.HasPrefix(r.url, "/sets/") && !strings.HasPrefix(r.url, "/rdm/") {
			r.headers, r.body = strings.ReplaceAll(links, "HUB", full.URL)+asJSON, page
		}
		d.cause(t, full.URL, r)
	}
}
