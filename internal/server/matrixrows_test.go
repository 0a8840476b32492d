package server

import (
	"net/http"
	"slices"
	"strings"
)

// A right is what a request needs, or what a caller has.
type right int

const (
	open    right = iota // not even good credentials
	nothing              // no right, but no wrong credentials either
	follow               // of the set
	publish              // to the set
	operate
)

func (r right) String() string {
	return map[right]string{follow: "follow", publish: "publish", operate: "operate"}[r]
}

// every stands in a row for each method that no other row of its path has.
const every = "*"

// A row is a request that the matrix makes. In its texts SET is a set, ID a subscription of
// it, STATUS the end of the URL of the subscription's status, SIZE the length of SET, LIST the
// name of its first Change List, HUB the hub's URL, and CALLBACK that of a callback.
type row struct {
	method, url   string
	needs         right
	there, absent int // status for who may: where the set is there, and where it is not
	body          string
	headers       []string

	makes   bool // a publish that makes the set if it is not there
	changes bool // a granted request leaves something else than it found
	endless bool // a granted answer does not end by itself
	once    bool // a granted request takes long: one caller makes it
	refused bool // it is for a method that the path does not take
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

// siteRows are the requests to the hub's own address.
var siteRows = []row{
	// The topic: publish.
	{method: "POST", url: "/sets/SET/changes", needs: publish, makes: true, there: 200, absent: 200, body: aPage, headers: asJSON, changes: true},
	{method: "POST", url: "/sets/SET/changes", needs: publish, makes: true, there: 200, absent: 200, body: aLine, headers: asNDJSON, changes: true},
	{method: "POST", url: "/sets/SET/changes", needs: publish, makes: true, there: 200, absent: 200, body: anXML, headers: asXML, changes: true},
	{method: "POST", url: "/sets/SET/changes", needs: publish, makes: true, there: 415, absent: 415, body: "a", headers: asText},
	{method: "POST", url: "/sets/SET/changes", needs: publish, makes: true, there: 400, absent: 400, body: "nonsense", headers: asJSON},
	{method: "POST", url: "/sets/SET/changes", needs: publish, makes: true, there: 400, absent: 400, body: aPage, headers: slices.Concat(asJSON, []string{"Idempotency-Key", strings.Repeat("k", 300)})},

	// The topic: follow. Who has the right of its own waits for a set that is not there.
	{method: "GET", url: "/sets/SET/changes", needs: follow, there: 200, absent: 200},
	{method: "GET", url: "/sets/SET/changes?since=start", needs: follow, there: 200, absent: 200},
	{method: "GET", url: "/sets/SET/changes?since=now&wait=1ms", needs: follow, there: 200, absent: 200},
	{method: "GET", url: "/sets/SET/changes?since=nonsense", needs: follow, there: 400, absent: 400},
	{method: "GET", url: "/sets/SET/changes?since=baseline", needs: follow, there: 200, absent: 200},
	{method: "GET", url: "/sets/SET/changes?since=now", needs: follow, there: 200, absent: 200, headers: []string{"Accept", "text/event-stream"}, endless: true},
	{method: "GET", url: "/sets/SET/changes?since=start", needs: follow, there: 101, absent: 101, headers: upgrade, endless: true},
	{method: "GET", url: "/sets/SET/changes?since=nonsense", needs: follow, there: 400, absent: 400, headers: upgrade},

	// Documents.
	{method: "GET", url: "/sets/SET/capabilitylist.xml", needs: follow, there: 200, absent: 404},
	{method: "GET", url: "/sets/SET/changelist.xml", needs: follow, there: 200, absent: 404},
	{method: "GET", url: "/sets/SET/changelist.xml?from=2026-01-01", needs: follow, there: 410, absent: 404},
	{method: "GET", url: "/sets/SET/changelist-index.xml", needs: follow, there: 200, absent: 404},
	{method: "GET", url: "/sets/SET/LIST", needs: follow, there: 200, absent: 404},
	{method: "GET", url: "/sets/SET/changelist-1-9-until-1.xml", needs: follow, there: 404, absent: 404},
	{method: "GET", url: "/sets/SET/resourcelist.xml", needs: follow, there: 200, absent: 404},
	{method: "GET", url: "/sets/SET/resourcelist-1-1700000000000000-1.xml", needs: follow, there: 410, absent: 404},
	{method: "GET", url: "/sets/SET/atom.xml", needs: follow, there: 200, absent: 404},
	{method: "GET", url: "/sets/SET/changeset.xml?after=nonsense", needs: follow, there: 400, absent: 404},
	{method: "GET", url: "/sets/SET/activity/collection.json", needs: follow, there: 200, absent: 404},
	{method: every, url: "/sets/SET/nothing.xml", needs: follow, there: 404, absent: 404},
	{method: every, url: "/sets/SET/", needs: follow, there: 404, absent: 404},

	// Tickets. Who may follow with the own right gets one before the set is there.
	{method: "POST", url: "/sets/SET/ticket", needs: follow, there: 200, absent: 200},
	{method: "POST", url: "/sets/SET/ticket", needs: follow, there: 200, absent: 200, body: `{"seconds":60,"cookie":true}`, headers: asJSON},
	{method: "POST", url: "/sets/SET/ticket", needs: follow, there: 400, absent: 400, body: "nonsense", headers: asJSON},
	{method: every, url: "/sets/SET/ticket", needs: nothing, there: 405, absent: 405},

	// What a set holds.
	{method: "GET", url: "/sets/SET/resources", needs: follow, there: 200, absent: 404},
	{method: "GET", url: "/sets/SET/resources", needs: follow, there: 200, absent: 404, headers: []string{"Accept", "application/x-ndjson"}},
	{method: "GET", url: "/sets/SET/resources?loc=https://example.org/a", needs: follow, there: 200, absent: 404},
	{method: "GET", url: "/sets/SET/resources?limit=nonsense", needs: follow, there: 400, absent: 400},
	{method: "GET", url: "/sets/SET/audit", needs: follow, there: 200, absent: 404},
	{method: "POST", url: "/sets/SET/audit", needs: follow, there: 400, absent: 400, body: "nonsense", headers: asJSON},

	// Resource Description Messages.
	{method: "GET", url: "/rdm/incoming?type=status-request", needs: nothing, there: 200, absent: 200},
	{method: "GET", url: "/rdm/incoming?type=server-description-request", needs: nothing, there: 200, absent: 200},
	{method: "GET", url: "/rdm/incoming?type=server-description-request&csid=SET", needs: follow, there: 200, absent: 404},
	{method: "GET", url: "/rdm/incoming?type=rd-request&scope=all&csid=SET", needs: follow, there: 200, absent: 404},
	{method: "GET", url: "/rdm/incoming?type=rd-request-deleted&scope=all&csid=SET", needs: follow, there: 200, absent: 404},
	{method: "GET", url: "/rdm/incoming?type=nonsense&csid=SET", needs: nothing, there: 400, absent: 400},
	{method: "POST", url: "/rdm/incoming", needs: publish, makes: true, there: 200, absent: 200, body: anRD, headers: asRDM, changes: true},
	{method: "POST", url: "/rdm/incoming", needs: publish, there: 400, absent: 400, body: strings.Replace(anRD, "https://example.org/a", "-", 1), headers: asRDM, makes: true},
	{method: "POST", url: "/rdm/incoming", needs: nothing, there: 415, absent: 415, body: "a", headers: asText},

	// Sets.
	{method: "GET", url: "/", needs: nothing, there: 200, absent: 200},
	{method: "GET", url: "/sets?limit=1000", needs: nothing, there: 200, absent: 200},
	{method: "GET", url: "/sets?limit=0", needs: nothing, there: 400, absent: 400},
	{method: "GET", url: "/.well-known/resourcesync", needs: nothing, there: 200, absent: 200},
	{method: "GET", url: "/robots.txt", needs: nothing, there: 404, absent: 404},
	{method: "GET", url: "/.well-known/api-catalog", needs: nothing, there: 200, absent: 200},
	{method: "GET", url: "/openapi.json", needs: nothing, there: 200, absent: 200},
	{method: every, url: "/nothing", needs: nothing, there: 404, absent: 404},
	{method: "GET", url: "/sets/SET", needs: follow, there: 200, absent: 404},
	{method: "PUT", url: "/sets/SET", needs: publish, makes: true, there: 200, absent: 200, body: `{"title":"other"}`, headers: asJSON, changes: true},
	{method: "PUT", url: "/sets/SET", needs: publish, makes: true, there: 400, absent: 400, body: `nonsense`, headers: asJSON},
	{method: "DELETE", url: "/sets/SET", needs: operate, there: 204, absent: 404, changes: true},

	// The page, and what it asks for.
	{method: "GET", url: "/page/version/main.js", needs: nothing, there: 200, absent: 200},
	{method: "GET", url: "/page/version/nothing.js", needs: nothing, there: 404, absent: 404},
	{method: "GET", url: "/sets/SET", needs: follow, there: 200, absent: 404, headers: []string{"Accept", "text/html"}},
	{method: "GET", url: "/caller", needs: nothing, there: 200, absent: 200},
	{method: "GET", url: "/activity", needs: operate, there: 200, absent: 200},
	{method: "GET", url: "/failures", needs: operate, there: 200, absent: 200},
	{method: "GET", url: "/sources", needs: operate, there: 200, absent: 200},
	{method: "GET", url: "/sets/SET?details=1&recent=5", needs: follow, there: 200, absent: 404},
	{method: "GET", url: "/sets/SET/activity", needs: follow, there: 200, absent: 404},
	{method: "GET", url: "/sets/SET/failures", needs: operate, there: 200, absent: 200},
	{method: "GET", url: "/sets/SET/proofs", needs: follow, there: 200, absent: 404},
	{method: "GET", url: "/sets/SET/requests", needs: follow, there: 200, absent: 200},

	// Subscriptions.
	{method: "GET", url: "/subscriptions/STATUS", needs: nothing, there: 200, absent: 404},
	{method: "GET", url: "/subscriptions/ID.wrong", needs: nothing, there: 404, absent: 404},
	{method: "GET", url: "/sets/SET/subscriptions", needs: operate, there: 200, absent: 404},
	{method: "GET", url: "/sets/SET/subscriptions/ID", needs: operate, there: 200, absent: 404},
	{method: "DELETE", url: "/sets/SET/subscriptions/ID", needs: operate, there: 202, absent: 404, changes: true},
	{method: every, url: "/sets/SET/subscriptions/ID", needs: operate, there: 405, absent: 404},
	{method: "POST", url: "/sets/SET/subscriptions/ID/retry", needs: operate, there: 202, absent: 404},
	{method: every, url: "/sets/SET/subscriptions/ID/retry", needs: operate, there: 405, absent: 404},
	{method: "PUT", url: "/sets/SET/subscriptions/ID/cursor", needs: operate, there: 202, absent: 404, body: `{"cursor":"now"}`, headers: asJSON},
	{method: every, url: "/sets/SET/subscriptions/ID/cursor", needs: operate, there: 405, absent: 404},
	{method: every, url: "/sets/SET/subscriptions/ID/nothing", needs: operate, there: 404, absent: 404},

	// The hub's URL: publish, and WebSub. They are last, because a subscription stays when its
	// set is removed.
	{method: "GET", url: "/hub", needs: nothing, there: 200, absent: 200},
	{method: "GET", url: "/publish", needs: nothing, there: 200, absent: 200},
	{method: "GET", url: "/subscribe", needs: nothing, there: 200, absent: 200},
	{method: "POST", url: "/hub", needs: nothing, there: 415, absent: 415, body: "a", headers: asText},
	{method: "POST", url: "/hub", needs: nothing, there: 400, absent: 400, body: aPage, headers: asJSON},
	{method: "POST", url: "/hub", needs: nothing, there: 400, absent: 400, body: "hub.mode=other" + topicField, headers: asForm},
	{method: "POST", url: "/hub", needs: publish, makes: true, there: 200, absent: 200, body: aPage, headers: slices.Concat(asJSON, links), changes: true},
	{method: "POST", url: "/publish", needs: publish, makes: true, there: 200, absent: 200, body: anXML, headers: slices.Concat(asXML, links), changes: true},
	{method: "POST", url: "/hub", needs: publish, there: 204, absent: 400, body: "hub.mode=publish" + topicField, headers: asForm},
	{method: "POST", url: "/publish", needs: publish, there: 204, absent: 400, body: "hub.mode=publish&hub.url=HUB/sets/SET/changes", headers: asForm},
	{method: "POST", url: "/subscribe", needs: follow, there: 202, absent: 202, body: "hub.mode=subscribe&hub.callback=CALLBACK/SET/own" + topicField, headers: asForm},
	{method: "POST", url: "/hub", needs: follow, there: 202, absent: 202, body: "hub.mode=subscribe&hub.callback=CALLBACK/SET/own" + topicField, headers: asForm},
	{method: "POST", url: "/hub", needs: follow, there: 400, absent: 400, body: "hub.mode=subscribe&hub.callback=nonsense" + topicField, headers: asForm},
	{method: "POST", url: "/hub", needs: follow, there: 403, absent: 404, body: "hub.mode=unsubscribe&hub.callback=CALLBACK/SET/kept" + topicField, headers: asForm}, // the owner made it
	{method: "POST", url: "/hub", needs: follow, there: 202, absent: 404, body: "hub.mode=unsubscribe&hub.callback=CALLBACK/SET/kept&rs.status=HUB/subscriptions/STATUS" + topicField, headers: asForm, changes: true},
	{method: "POST", url: "/hub", needs: follow, there: 404, absent: 404, body: "hub.mode=unsubscribe&hub.callback=CALLBACK/SET/none" + topicField, headers: asForm},
}

// opsRows are the requests to the address for operations.
var opsRows = []row{
	{method: "GET", url: "/healthz", needs: open, there: 200},
	{method: "GET", url: "/readyz", needs: open, there: 200},
	{method: "GET", url: "/metrics", needs: open, there: 200},
	{method: "GET", url: "/backup", needs: operate, there: 200},
	{method: "POST", url: "/backup", needs: operate, there: 200},
	{method: "GET", url: "/debug/pprof/", needs: operate, there: 200},
	{method: "POST", url: "/debug/pprof/", needs: operate, there: 200},
	{method: "GET", url: "/debug/pprof/goroutine", needs: operate, there: 200},
	{method: "POST", url: "/debug/pprof/goroutine", needs: operate, there: 200},
	{method: "GET", url: "/debug/pprof/cmdline", needs: operate, there: 404}, // the command may have secrets
	{method: "POST", url: "/debug/pprof/cmdline", needs: operate, there: 404},
	{method: "GET", url: "/debug/pprof/symbol", needs: operate, there: 200},
	{method: "POST", url: "/debug/pprof/symbol", needs: operate, there: 200},
	{method: "GET", url: "/debug/pprof/profile?seconds=1", needs: operate, there: 200, once: true},
	{method: "POST", url: "/debug/pprof/profile?seconds=1", needs: operate, there: 200, once: true},
	{method: "GET", url: "/debug/pprof/trace?seconds=0.01", needs: operate, there: 200, once: true},
	{method: "POST", url: "/debug/pprof/trace?seconds=0.01", needs: operate, there: 200, once: true},
	{method: every, url: "/", needs: open, there: 404},
	{method: every, url: "/sets", needs: open, there: 404},
}

// path returns the URL of a row without its query.
func (r *row) path() string {
	path, _, _ := strings.Cut(r.url, "?")
	return path
}

// methods are those that every path is tried with.
var methods = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch, http.MethodOptions}

// allMethods returns rows, and for each path a row for each further method. HEAD is
// answered as GET is. A method that a path does not take is answered 405; before that it
// needs the right that all other methods of the path need, if that is the same right, and
// if methods are not looked at first.
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
		other := row{method: every, url: path, needs: paths[path][0].needs, there: http.StatusMethodNotAllowed, absent: http.StatusMethodNotAllowed}
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
			if r.method == http.MethodGet && !slices.Equal(r.headers, upgrade) { // no WebSocket begins with HEAD
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
