package server

import (
	"net/http"
	"slices"
	"strings"
)

// A right is required by a request, or held by a caller.
type right int

const (
	open    right = iota // no check of credentials
	nothing              // no right, but invalid credentials are refused
	follow               // follow the set
	publish              // publish to the set
	operate
)

func (r right) String() string {
	return map[right]string{follow: "follow", publish: "publish", operate: "operate"}[r]
}

// every in a row stands for all methods that no other row of its path has.
const every = "*"

// A row is a request of the matrix. Its strings contain placeholders: SET is a set, SIZE the length of
// its name, ID a subscription of it, STATUS the last segment of the status URL of the subscription, LIST
// the name of the first Change List, HUB the URL of the hub, and CALLBACK the URL of a callback.
type row struct {
	method, url     string
	needs           right
	present, absent int // status for callers with the right, if the set exists and if not
	body            string
	headers         []string

	creates bool // whether it creates the set if it does not exist
	changes bool // whether it modifies the set
	stream  bool // whether the response is a stream without an end
	slow    bool // whether it is slow, so that only one caller sends it
	refused bool // whether the path does not allow the method
}

var (
	asJSON   = []string{"Content-Type", "application/json"}
	asNDJSON = []string{"Content-Type", "application/x-ndjson"}
	asXML    = []string{"Content-Type", "application/xml"}
	asForm   = []string{"Content-Type", "application/x-www-form-urlencoded"}
	asText   = []string{"Content-Type", "text/plain"}
	links    = []string{"Link", `<HUB/sets/SET/changes>; rel="self", <HUB/hub>; rel="hub"`}
	upgrade  = []string{"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA=="}
)

const (
	aLine = `{"loc":"https://example.org/a","change":"updated"}`
	aPage = `{"changes":[` + aLine + `]}`
	anXML = `<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/"><rs:md capability="change-notification"/>` +
		`<url><loc>https://example.org/a</loc><rs:md change="updated"/></url></urlset>`
	anRD       = "@RDMHEADER { -\nRDM-Version{3}:\t1.0\nRDM-Type{11}:\trd-response\ncatalog-service-id{SIZE}:\tSET\n}\n@DOCUMENT { https://example.org/a\n}\n"
	topicField = "&hub.topic=HUB/sets/SET/changes"
)

// siteRows are the requests to the public address.
var siteRows = []row{
	// The topic: publish.
	{method: "POST", url: "/sets/SET/changes", needs: publish, creates: true, present: 200, absent: 200, body: aPage, headers: asJSON, changes: true},
	{method: "POST", url: "/sets/SET/changes", needs: publish, creates: true, present: 200, absent: 200, body: aLine, headers: asNDJSON, changes: true},
	{method: "POST", url: "/sets/SET/changes", needs: publish, creates: true, present: 200, absent: 200, body: anXML, headers: asXML, changes: true},
	{method: "POST", url: "/sets/SET/changes", needs: publish, creates: true, present: 415, absent: 415, body: "a", headers: asText},
	{method: "POST", url: "/sets/SET/changes", needs: publish, creates: true, present: 400, absent: 400, body: "nonsense", headers: asJSON},
	{method: "POST", url: "/sets/SET/changes", needs: publish, creates: true, present: 400, absent: 400, body: aPage, headers: slices.Concat(asJSON, []string{"Idempotency-Key", strings.Repeat("k", 300)})},

	// The topic: follow. A caller with its own right may wait for a set that does not exist.
	{method: "GET", url: "/sets/SET/changes", needs: follow, present: 200, absent: 200},
	{method: "GET", url: "/sets/SET/changes?since=start", needs: follow, present: 200, absent: 200},
	{method: "GET", url: "/sets/SET/changes?since=now&wait=1ms", needs: follow, present: 200, absent: 200},
	{method: "GET", url: "/sets/SET/changes?since=nonsense", needs: follow, present: 400, absent: 400},
	{method: "GET", url: "/sets/SET/changes?since=baseline", needs: follow, present: 200, absent: 200},
	{method: "GET", url: "/sets/SET/changes?since=now", needs: follow, present: 200, absent: 200, headers: []string{"Accept", "text/event-stream"}, stream: true},
	{method: "GET", url: "/sets/SET/changes?since=start", needs: follow, present: 101, absent: 101, headers: upgrade, stream: true},
	{method: "GET", url: "/sets/SET/changes?since=nonsense", needs: follow, present: 400, absent: 400, headers: upgrade},

	// Many sets on one connection. The rights to each set are checked for its messages.
	{method: "GET", url: "/changes", needs: nothing, present: 426, absent: 426},
	{method: "GET", url: "/changes", needs: nothing, present: 101, absent: 101, headers: upgrade, stream: true},

	// Documents.
	{method: "GET", url: "/sets/SET/capabilitylist.xml", needs: follow, present: 200, absent: 404},
	{method: "GET", url: "/sets/SET/changelist.xml", needs: follow, present: 200, absent: 404},
	{method: "GET", url: "/sets/SET/changelist.xml?from=2026-01-01", needs: follow, present: 410, absent: 404},
	{method: "GET", url: "/sets/SET/changelist-index.xml", needs: follow, present: 200, absent: 404},
	{method: "GET", url: "/sets/SET/LIST", needs: follow, present: 200, absent: 404},
	{method: "GET", url: "/sets/SET/changelist-1-9-until-1.xml", needs: follow, present: 404, absent: 404},
	{method: "GET", url: "/sets/SET/resourcelist.xml", needs: follow, present: 200, absent: 404},
	{method: "GET", url: "/sets/SET/resourcelist-1-1700000000000000-1.xml", needs: follow, present: 410, absent: 404},
	{method: "GET", url: "/sets/SET/atom.xml", needs: follow, present: 200, absent: 404},
	{method: "GET", url: "/sets/SET/changeset.xml?after=nonsense", needs: follow, present: 400, absent: 404},
	{method: "GET", url: "/sets/SET/activity/collection.json", needs: follow, present: 200, absent: 404},
	{method: every, url: "/sets/SET/nothing.xml", needs: follow, present: 404, absent: 404},
	{method: every, url: "/sets/SET/", needs: follow, present: 404, absent: 404},

	// Tickets. A caller with its own right gets one before the set exists.
	{method: "POST", url: "/sets/SET/ticket", needs: follow, present: 200, absent: 200},
	{method: "POST", url: "/sets/SET/ticket", needs: follow, present: 200, absent: 200, body: `{"seconds":60,"cookie":true}`, headers: asJSON},
	{method: "POST", url: "/sets/SET/ticket", needs: follow, present: 400, absent: 400, body: "nonsense", headers: asJSON},
	{method: every, url: "/sets/SET/ticket", needs: nothing, present: 405, absent: 405},
	{method: "POST", url: "/ticket", needs: nothing, present: 200, absent: 200},
	{method: "POST", url: "/ticket", needs: nothing, present: 400, absent: 400, body: "nonsense", headers: asJSON},

	// Inventory.
	{method: "GET", url: "/sets/SET/resources", needs: follow, present: 200, absent: 404},
	{method: "GET", url: "/sets/SET/resources", needs: follow, present: 200, absent: 404, headers: []string{"Accept", "application/x-ndjson"}},
	{method: "GET", url: "/sets/SET/resources?loc=https://example.org/a", needs: follow, present: 200, absent: 404},
	{method: "GET", url: "/sets/SET/resources?limit=nonsense", needs: follow, present: 400, absent: 400},
	{method: "GET", url: "/sets/SET/audit", needs: follow, present: 200, absent: 404},
	{method: "POST", url: "/sets/SET/audit", needs: follow, present: 400, absent: 400, body: "nonsense", headers: asJSON},

	// Resource Description Messages.
	{method: "GET", url: "/rdm/incoming?type=status-request", needs: nothing, present: 200, absent: 200},
	{method: "GET", url: "/rdm/incoming?type=server-description-request", needs: nothing, present: 200, absent: 200},
	{method: "GET", url: "/rdm/incoming?type=server-description-request&csid=SET", needs: follow, present: 200, absent: 404},
	{method: "GET", url: "/rdm/incoming?type=rd-request&scope=all&csid=SET", needs: follow, present: 200, absent: 404},
	{method: "GET", url: "/rdm/incoming?type=rd-request-deleted&scope=all&csid=SET", needs: follow, present: 200, absent: 404},
	{method: "GET", url: "/rdm/incoming?type=nonsense&csid=SET", needs: nothing, present: 400, absent: 400},
	{method: "POST", url: "/rdm/incoming", needs: publish, creates: true, present: 200, absent: 200, body: anRD, headers: asRDM, changes: true},
	{method: "POST", url: "/rdm/incoming", needs: publish, present: 400, absent: 400, body: strings.Replace(anRD, "https://example.org/a", "-", 1), headers: asRDM, creates: true},
	{method: "POST", url: "/rdm/incoming", needs: nothing, present: 415, absent: 415, body: "a", headers: asText},

	// Sets.
	{method: "GET", url: "/", needs: nothing, present: 200, absent: 200},
	{method: "GET", url: "/sets?limit=1000", needs: nothing, present: 200, absent: 200},
	{method: "GET", url: "/sets?limit=0", needs: nothing, present: 400, absent: 400},
	{method: "GET", url: "/.well-known/resourcesync", needs: nothing, present: 200, absent: 200},
	{method: "GET", url: "/robots.txt", needs: nothing, present: 404, absent: 404},
	{method: "GET", url: "/.well-known/api-catalog", needs: nothing, present: 200, absent: 200},
	{method: "GET", url: "/openapi.json", needs: nothing, present: 200, absent: 200},
	{method: every, url: "/nothing", needs: nothing, present: 404, absent: 404},
	{method: "GET", url: "/sets/SET", needs: follow, present: 200, absent: 404},
	{method: "PUT", url: "/sets/SET", needs: publish, creates: true, present: 200, absent: 200, body: `{"title":"other"}`, headers: asJSON, changes: true},
	{method: "PUT", url: "/sets/SET", needs: publish, creates: true, present: 400, absent: 400, body: `nonsense`, headers: asJSON},
	{method: "DELETE", url: "/sets/SET", needs: operate, present: 204, absent: 404, changes: true},

	// The page and its data.
	{method: "GET", url: "/page/version/main.js", needs: nothing, present: 200, absent: 200},
	{method: "GET", url: "/page/version/nothing.js", needs: nothing, present: 404, absent: 404},
	{method: "GET", url: "/sets/SET", needs: follow, present: 200, absent: 404, headers: []string{"Accept", "text/html"}},
	{method: "GET", url: "/caller", needs: nothing, present: 200, absent: 200},
	{method: "GET", url: "/activity", needs: operate, present: 200, absent: 200},
	{method: "GET", url: "/failures", needs: operate, present: 200, absent: 200},
	{method: "GET", url: "/sources", needs: operate, present: 200, absent: 200},
	{method: "GET", url: "/sets/SET?details=1&recent=5", needs: follow, present: 200, absent: 404},
	{method: "GET", url: "/sets/SET/activity", needs: follow, present: 200, absent: 404},
	{method: "GET", url: "/sets/SET/failures", needs: operate, present: 200, absent: 200},
	{method: "GET", url: "/sets/SET/proofs", needs: follow, present: 200, absent: 404},
	{method: "GET", url: "/sets/SET/requests", needs: follow, present: 200, absent: 200},

	// Subscriptions.
	{method: "GET", url: "/subscriptions/STATUS", needs: nothing, present: 200, absent: 404},
	{method: "GET", url: "/subscriptions/ID.wrong", needs: nothing, present: 404, absent: 404},
	{method: "GET", url: "/sets/SET/subscriptions", needs: operate, present: 200, absent: 404},
	{method: "GET", url: "/sets/SET/subscriptions/ID", needs: operate, present: 200, absent: 404},
	{method: "DELETE", url: "/sets/SET/subscriptions/ID", needs: operate, present: 202, absent: 404, changes: true},
	{method: every, url: "/sets/SET/subscriptions/ID", needs: operate, present: 405, absent: 404},
	{method: "POST", url: "/sets/SET/subscriptions/ID/retry", needs: operate, present: 202, absent: 404},
	{method: every, url: "/sets/SET/subscriptions/ID/retry", needs: operate, present: 405, absent: 404},
	{method: "PUT", url: "/sets/SET/subscriptions/ID/cursor", needs: operate, present: 202, absent: 404, body: `{"cursor":"now"}`, headers: asJSON},
	{method: every, url: "/sets/SET/subscriptions/ID/cursor", needs: operate, present: 405, absent: 404},
	{method: every, url: "/sets/SET/subscriptions/ID/nothing", needs: operate, present: 404, absent: 404},

	// The hub URL: publish, and WebSub. These are last, because a subscription outlives its set.
	{method: "GET", url: "/hub", needs: nothing, present: 200, absent: 200},
	{method: "GET", url: "/publish", needs: nothing, present: 200, absent: 200},
	{method: "GET", url: "/subscribe", needs: nothing, present: 200, absent: 200},
	{method: "POST", url: "/hub", needs: nothing, present: 415, absent: 415, body: "a", headers: asText},
	{method: "POST", url: "/hub", needs: nothing, present: 400, absent: 400, body: aPage, headers: asJSON},
	{method: "POST", url: "/hub", needs: nothing, present: 400, absent: 400, body: "hub.mode=other" + topicField, headers: asForm},
	{method: "POST", url: "/hub", needs: publish, creates: true, present: 200, absent: 200, body: aPage, headers: slices.Concat(asJSON, links), changes: true},
	{method: "POST", url: "/publish", needs: publish, creates: true, present: 200, absent: 200, body: anXML, headers: slices.Concat(asXML, links), changes: true},
	{method: "POST", url: "/hub", needs: publish, present: 204, absent: 400, body: "hub.mode=publish" + topicField, headers: asForm},
	{method: "POST", url: "/publish", needs: publish, present: 204, absent: 400, body: "hub.mode=publish&hub.url=HUB/sets/SET/changes", headers: asForm},
	{method: "POST", url: "/subscribe", needs: follow, present: 202, absent: 202, body: "hub.mode=subscribe&hub.callback=CALLBACK/SET/own" + topicField, headers: asForm},
	{method: "POST", url: "/hub", needs: follow, present: 202, absent: 202, body: "hub.mode=subscribe&hub.callback=CALLBACK/SET/own" + topicField, headers: asForm},
	{method: "POST", url: "/hub", needs: follow, present: 400, absent: 400, body: "hub.mode=subscribe&hub.callback=nonsense" + topicField, headers: asForm},
	{method: "POST", url: "/hub", needs: follow, present: 403, absent: 404, body: "hub.mode=unsubscribe&hub.callback=CALLBACK/SET/kept" + topicField, headers: asForm}, // it belongs to the owner
	{method: "POST", url: "/hub", needs: follow, present: 202, absent: 404, body: "hub.mode=unsubscribe&hub.callback=CALLBACK/SET/kept&rs.status=HUB/subscriptions/STATUS" + topicField, headers: asForm, changes: true},
	{method: "POST", url: "/hub", needs: follow, present: 404, absent: 404, body: "hub.mode=unsubscribe&hub.callback=CALLBACK/SET/none" + topicField, headers: asForm},
}

// opsRows are the requests to the operations address.
var opsRows = []row{
	{method: "GET", url: "/healthz", needs: open, present: 200},
	{method: "GET", url: "/readyz", needs: open, present: 200},
	{method: "GET", url: "/metrics", needs: open, present: 200},
	{method: "GET", url: "/backup", needs: operate, present: 200},
	{method: "POST", url: "/backup", needs: operate, present: 200},
	{method: "GET", url: "/debug/pprof/", needs: operate, present: 200},
	{method: "POST", url: "/debug/pprof/", needs: operate, present: 200},
	{method: "GET", url: "/debug/pprof/goroutine", needs: operate, present: 200},
	{method: "POST", url: "/debug/pprof/goroutine", needs: operate, present: 200},
	{method: "GET", url: "/debug/pprof/cmdline", needs: operate, present: 404}, // the command line may contain secrets
	{method: "POST", url: "/debug/pprof/cmdline", needs: operate, present: 404},
	{method: "GET", url: "/debug/pprof/symbol", needs: operate, present: 200},
	{method: "POST", url: "/debug/pprof/symbol", needs: operate, present: 200},
	{method: "GET", url: "/debug/pprof/profile?seconds=1", needs: operate, present: 200, slow: true},
	{method: "POST", url: "/debug/pprof/profile?seconds=1", needs: operate, present: 200, slow: true},
	{method: "GET", url: "/debug/pprof/trace?seconds=0.01", needs: operate, present: 200, slow: true},
	{method: "POST", url: "/debug/pprof/trace?seconds=0.01", needs: operate, present: 200, slow: true},
	{method: every, url: "/", needs: open, present: 404},
	{method: every, url: "/sets", needs: open, present: 404},
}

// path returns the URL of a row without its query.
func (r *row) path() string {
	path, _, _ := strings.Cut(r.url, "?")
	return path
}

// methods are the methods that are sent to every path.
var methods = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch, http.MethodOptions}

// allMethods returns rows, and for each path a row for each further method. HEAD has the same response
// as GET. A method that a path does not allow gets 405. If all allowed methods require the same right,
// so does it, unless methodsFirst says that the address checks methods before rights.
func allMethods(rows []row, methodsFirst bool) []row {
	var all []row
	paths := map[string][]row{}
	var order []string
	for _, r := range rows {
		if paths[r.path()] == nil {
			order = append(order, r.path())
		}
		paths[r.path()] = append(paths[r.path()], r)
	}
	for _, path := range order {
		other := row{method: every, url: path, needs: paths[path][0].needs, present: http.StatusMethodNotAllowed, absent: http.StatusMethodNotAllowed}
		if methodsFirst {
			other.needs = open
		}
		taken := map[string]bool{}
		for _, r := range paths[path] {
			if r.method == every {
				other = r
				continue
			}
			if !methodsFirst && r.needs != paths[path][0].needs {
				other.needs = nothing
			}
			taken[r.method] = true
			all = append(all, r)
			if r.method == http.MethodGet && !slices.Equal(r.headers, upgrade) { // a WebSocket handshake is a GET
				taken[http.MethodHead] = true
				r.method = http.MethodHead
				all = append(all, r)
			}
		}
		for _, method := range methods {
			if !taken[method] {
				other.method, other.refused = method, true
				all = append(all, other)
			}
		}
	}
	return all
}
