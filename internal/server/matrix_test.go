package server

import (
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rshub/rshub/internal/access/ticket"
	"github.com/rshub/rshub/internal/testutil"
)

// Sets of a caller. Their names have the same length, so that responses have, too.
const (
	public = "public"
	hidden = "hidden" // private
	absent = "absent" // does not exist
)

// A matrix is a hub to which every kind of caller sends every request for each of its sets.
type matrix struct {
	*testHub
	anyone   []right // rights of callers without a token
	owner    string  // Authorization header with all rights
	callback string  // URL of a callback that confirms everything
	client   http.Client
	status   sync.Map    // last segment of the status URL of the subscription, by set
	list     sync.Map    // name of the first Change List, by set
	once     *sync.Map   // slow rows that were sent, to any hub
	slow     *sync.Mutex // held while one of them is sent
}

// A cell is one request of one caller for one set.
type cell struct {
	row
	callerKind
	authorized string            // Authorization header
	tickets    map[string]string // tickets by set
	set        string
}

// may reports whether the caller's own rights allow the request.
func (c *cell) may() bool {
	k := c.forMethod(c.method)
	return c.needs == open || !k.bad && (c.needs == nothing || slices.Contains(k.has, c.needs))
}

// want returns the expected status of a cell. The rights of anyone apply to public sets, and a publish
// with them may also create a set.
func (m *matrix) want(c *cell) int {
	granted, k := c.present, c.forMethod(c.method)
	if strings.HasSuffix(c.set, absent) {
		granted = c.absent
	}
	switch {
	case c.may():
		return granted
	case k.bad:
		return http.StatusUnauthorized
	case !slices.Contains(m.anyone, c.needs) && k.anonymous:
		return http.StatusUnauthorized
	case !slices.Contains(m.anyone, c.needs):
		return http.StatusForbidden
	case strings.HasSuffix(c.set, public), c.creates && strings.HasSuffix(c.set, absent):
		return granted
	case c.needs == follow && strings.HasSuffix(c.set, hidden) && slices.Contains(k.has, publish):
		return http.StatusForbidden // publishers to a private set know that it exists
	}
	return http.StatusNotFound
}

// Every request of every kind of caller, for a public set, a private one and one that does not exist,
// has the status that follows from its rights. Callers who may neither follow a private set nor publish
// to it get the same responses as for a set that does not exist.
func TestMatrix(t *testing.T) {
	t.Parallel()
	var once sync.Map
	var slow sync.Mutex
	for _, hub := range []struct {
		name, anyone string
		has          []right
		includes     func(k callerKind) bool
		all          []string // callers that send every request with -short
	}{
		{"open", "follow:*", []right{follow}, func(callerKind) bool { return true },
			[]string{"none", "follow", "publish", "operate", "token for another set", "unknown token", "ticket for this set"}},
		{"closed", "", nil, func(k callerKind) bool {
			return !strings.HasPrefix(k.name, "JWT") && (!k.bad || k.name == "unknown token") && (k.ticket == nil || slices.Contains(representative, k.name))
		}, []string{"none", "token for another set"}},
		{"wide", "follow:*,publish:*", []right{follow, publish}, func(k callerKind) bool {
			return k.name == "none" || k.name == "publish" || k.name == "token for another set"
		},
			[]string{"none"}},
	} {
		t.Run(hub.name, func(t *testing.T) {
			t.Parallel()
			o := newIssuer(t)
			m := &matrix{once: &once, slow: &slow, anyone: hub.has, owner: "Bearer " + o.token(allRights)}
			var callers []cell // cell.set is the prefix of their sets
			for i, k := range callerKinds() {
				if !hub.includes(k) {
					continue
				}
				c := cell{callerKind: k, set: fmt.Sprintf("caller%02d-", i)}
				if k.bad {
					c.set = shared
				}
				if k.authorization != nil {
					c.authorized = k.authorization(t, o, c.set)
				}
				callers = append(callers, c)
			}
			m.open(t, Config{Callers: o.open(t, hub.anyone)})
			for _, set := range []string{public, hidden} {
				m.createSet(t, shared+set)
			}
			site, ops := allMethods(siteRows, false), allMethods(opsRows, true)
			for _, c := range callers {
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					if !c.bad {
						for _, set := range []string{public, hidden} {
							m.createSet(t, c.set+set)
						}
					}
					some := func(rows []row) []row { return rows }
					switch {
					case testing.Short() && slices.Contains(hub.all, c.name):
						some = fewMethods(slices.Index(hub.all, c.name), len(hub.all))
					case testing.Short():
						some = oneOfEach
					}
					if c.ticket != nil {
						m.issueTickets(t, &c)
					}
					for _, c.row = range some(site) {
						m.check(t, m.URL, c)
					}
					for _, c.row = range some(ops) {
						m.check(t, m.Ops, c)
					}
				})
			}
		})
	}
}

// open starts the hub and a callback server.
func (m *matrix) open(t *testing.T, c Config) {
	t.Helper()
	callback := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		set, kept := strings.CutSuffix(r.URL.Path, "/kept")
		if kept && q.Get("hub.mode") == "subscribe" {
			m.status.Store(path.Base(set), path.Base(q.Get("rs.status")))
		}
		_, _ = io.WriteString(w, q.Get("hub.challenge"))
	}))
	t.Cleanup(callback.Close)
	c.CallbackAllow, c.CallbackRequests = loopback, 1_000_000
	c.CallerLimits = limits(t, "requests:none,publishes:none,changes:none,bytes:none,sets:none,connections:none")
	c.AddressLimits = c.CallerLimits
	m.testHub, m.callback = start(t, c), callback.URL
	m.client = http.Client{
		Transport:     &http.Transport{MaxIdleConnsPerHost: 8, DisableCompression: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       time.Minute,
	}
	t.Cleanup(m.client.CloseIdleConnections)
}

// issueTickets replaces the token of a caller by a ticket for each of its sets.
func (m *matrix) issueTickets(t *testing.T, c *cell) {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Authorization", c.authorized)
	holder, err := m.server.callers.authenticator.Caller(r)
	if err != nil {
		t.Fatal(err)
	}
	c.authorized, c.tickets = "", map[string]string{}
	for _, set := range []string{public, hidden, absent} {
		c.tickets[c.set+set] = c.ticket(t, m, holder, c.set+set)
	}
}

// shared is the prefix of the sets of all callers with invalid credentials, which cannot modify sets.
const shared = "shared-"

// title is part of the title of each set.
const title = "the title of"

// createSet creates a set, or restores its initial state.
func (m *matrix) createSet(t *testing.T, set string) {
	t.Helper()
	if strings.HasSuffix(set, absent) {
		m.doAsOwner(t, set, row{method: "DELETE", url: "/sets/SET", present: 204})
		return
	}
	m.status.Delete(set)
	m.doAsOwner(t, set, row{method: "POST", url: "/sets/SET/changes", present: 200, body: aPage, headers: asJSON})
	m.doAsOwner(t, set, row{method: "PUT", url: "/sets/SET", present: 200, headers: asJSON,
		body: fmt.Sprintf(`{"title":"%s SET","changelist":"CALLBACK/changelist.xml","complete":true,"private":%t}`, title, strings.HasSuffix(set, hidden))})
	m.doAsOwner(t, set, row{method: "POST", url: "/hub", present: 202, body: "hub.mode=subscribe&hub.callback=CALLBACK/SET/kept" + topicField, headers: asForm})
	testutil.Until(t, "the subscription of "+set+" exists", func() bool {
		resp, _ := m.do(t, m.URL, &cell{row: row{method: "GET", url: "/subscriptions/STATUS"}, authorized: m.owner, set: set})
		return resp.StatusCode == http.StatusOK
	})
	for _, document := range []string{"resourcelist.xml", "changelist-index.xml"} {
		testutil.Until(t, document+" of "+set+" exists", func() bool {
			resp, body := m.do(t, m.URL, &cell{row: row{method: "GET", url: "/sets/SET/" + document}, authorized: m.owner, set: set})
			if list := firstList.FindString(body); list != "" {
				m.list.Store(set, list)
			}
			return resp.StatusCode == http.StatusOK
		})
	}
}

var firstList = regexp.MustCompile(`changelist-[^-/]+-1-[^/]+\.xml`)

// doAsOwner sends a request with all rights.
func (m *matrix) doAsOwner(t *testing.T, set string, r row) {
	t.Helper()
	if resp, text := m.do(t, m.URL, &cell{row: r, authorized: m.owner, set: set}); resp.StatusCode != r.present {
		t.Errorf("%s %s of %s: got %d %s, want %d", r.method, r.url, set, resp.StatusCode, text, r.present)
	}
}

// do sends the request of a cell, and reads the response unless it is a stream.
func (m *matrix) do(t *testing.T, base string, c *cell) (*http.Response, string) {
	t.Helper()
	id, status := "aaaaaaaaaaaaaaaaaaaaaaaaaa", "aaaaaaaaaaaaaaaaaaaaaaaaaa.wrong"
	if s, ok := m.status.Load(c.set); ok {
		status = s.(string)
		id, _, _ = strings.Cut(status, ".")
	} else if s, ok := m.status.Load(strings.Replace(c.set, absent, public, 1)); ok { // status of another set
		id, _, _ = strings.Cut(s.(string), ".")
		status = id + ".wrong"
	}
	list, ok := m.list.Load(c.set)
	if !ok {
		list = "changelist-1700000000000000-1-from-1700000000000000.xml"
	}
	fill := strings.NewReplacer("SET", c.set, "SIZE", strconv.Itoa(len(c.set)), "STATUS", status, "ID", id, "LIST", list.(string), "HUB", m.URL, "CALLBACK", m.callback).Replace
	r, err := http.NewRequestWithContext(t.Context(), c.method, base+fill(c.url), strings.NewReader(fill(c.body)))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(c.headers); i += 2 {
		r.Header.Set(c.headers[i], fill(c.headers[i+1]))
	}
	if text := c.tickets[c.set]; text != "" && c.cookie {
		r.AddCookie(&http.Cookie{Name: ticket.Cookie, Value: text})
	} else if text != "" {
		q := r.URL.Query()
		q.Set(ticket.Parameter, text)
		r.URL.RawQuery = q.Encode()
	}
	if c.authorized != "" {
		r.Header.Set("Authorization", c.authorized)
	}
	resp, err := m.client.Do(r)
	if err != nil {
		t.Error(err)
		return &http.Response{}, ""
	}
	defer resp.Body.Close()
	if c.stream && resp.StatusCode < 300 {
		return resp, ""
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return resp, string(text)
}

// listPaths are the paths that list the sets.
var listPaths = []string{"/", "/sets", "/.well-known/resourcesync"}

// representative are the kinds of callers that also send methods that a path does not allow. The other kinds
// have the same rights by other credentials.
var representative = []string{"none", "follow", "publish", "operate", "everything", "token for another set", "unknown token", "JWT EdDSA[follow publish]", "ticket for this set"}

// oneOfEach returns one request of each method for each right, and the listPaths, without HEAD. With -short
// that is enough for callers with the same rights by other credentials, because the hub identifies the
// caller before it routes the request. It is also enough at the other hubs for callers whose rights
// all routes check at the first hub.
func oneOfEach(rows []row) (some []row) {
	type shape struct {
		method  string
		needs   right
		creates bool
	}
	made := map[shape]bool{}
	for _, r := range rows {
		s := shape{r.method, r.needs, r.creates}
		if r.method != http.MethodHead && (!made[s] || slices.Contains(listPaths, r.path())) {
			some = append(some, r)
		}
		made[s] = true
	}
	return some
}

// fewMethods returns a filter that drops most requests with HEAD or with methods that a path does not
// allow. It is for caller i of n with -short: each of these requests is sent by one of the n callers.
func fewMethods(i, n int) func(rows []row) []row {
	return func(rows []row) (some []row) {
		for _, r := range rows {
			rare := r.refused || r.method == http.MethodHead
			if rare {
				i++
			}
			if !rare || i%n == 0 {
				some = append(some, r)
			}
		}
		return some
	}
}

// check sends a request for each of the sets of a caller, whose names start with c.set.
func (m *matrix) check(t *testing.T, base string, c cell) {
	sets := c.set
	if c.refused && !slices.Contains(representative, c.name) {
		return
	}
	if c.slow && c.may() {
		if _, made := m.once.LoadOrStore(c.method+c.url, true); made {
			return
		}
		m.slow.Lock()
		defer m.slow.Unlock()
	}
	answers, wants := map[string]string{}, map[string]int{}
	for _, set := range []string{public, hidden, absent} {
		c.set = sets + set
		resp, body := m.do(t, base, &c)
		want := m.want(&c)
		wants[set] = want
		if resp.StatusCode != want {
			t.Errorf("%s for %s: %s %s %q %q: got %d, want %d: %.300s", c.name, set, c.method, c.url, c.headers, c.body, resp.StatusCode, want, body)
		}
		if asked := resp.Header.Get("WWW-Authenticate") != ""; asked != (resp.StatusCode == http.StatusUnauthorized) && !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/html") { // a page has its own form
			t.Errorf("%s: %s %s: got %d with WWW-Authenticate: %t, want it only with 401", c.name, c.method, c.url, resp.StatusCode, asked)
		}
		if secret := strings.TrimPrefix(c.authorized, "Bearer "); len(secret) > 20 && strings.Contains(body, secret) {
			t.Errorf("%s: %s %s: got the token in the response: %s", c.name, c.method, c.url, body)
		}
		if set == hidden && strings.Contains(body, title) && !slices.Contains(c.has, follow) && !c.may() {
			t.Errorf("%s: %s %s: got the title of a private set: %s", c.name, c.method, c.url, body)
		}
		answers[set] = visible(resp, body, c.set)
		if c.changes && resp.StatusCode < 300 {
			m.createSet(t, c.set)
		}
		if !c.named() { // the request is the same for all sets
			if resp.StatusCode == http.StatusOK && c.method == http.MethodGet && slices.Contains(listPaths, c.path()) {
				m.checkList(t, sets, &c, resp, body)
			}
			return
		}
		if set == absent && (!c.may() || c.needs == nothing) && want == wants[hidden] && answers[hidden] != answers[absent] {
			t.Errorf("%s: %s %s %q %q: got for a private set:\n%s\nand for a missing set:\n%s\nwant the same", c.name, c.method, c.url, c.headers, c.body, answers[hidden], answers[absent])
		}
	}
}

// checkList checks that a list names the sets that the caller may follow, and varies by caller.
func (m *matrix) checkList(t *testing.T, sets string, c *cell, resp *http.Response, body string) {
	if !strings.Contains(strings.Join(resp.Header.Values("Vary"), ","), "Authorization") {
		t.Errorf("GET %s: got Vary %v, want Authorization", c.url, resp.Header.Values("Vary"))
	}
	own := slices.Contains(c.forMethod(c.method).has, follow)
	others := own && c.ticket == nil // a ticket is for one set
	for set, sees := range map[string]bool{public: own || slices.Contains(m.anyone, follow), hidden: others, absent: false} {
		if strings.Contains(body, sets+set) != sees {
			t.Errorf("%s: GET %s: got the %s set: %t, want %t: %s", c.name, c.url, set, !sees, sees, body)
		}
	}
}

// named reports whether the request names a set.
func (r *row) named() bool {
	text := r.url + r.body + strings.Join(r.headers, "")
	return strings.Contains(text, "SET") || strings.Contains(text, "ID")
}

// volatile matches the parts of a response that differ between responses.
var volatile = regexp.MustCompile(`"requestId":"[^"]*"`)

// visible returns everything a caller sees of a response, with the name of the set replaced.
func visible(resp *http.Response, body, set string) string {
	var text strings.Builder
	fmt.Fprintln(&text, resp.Status)
	for _, name := range slices.Sorted(maps.Keys(resp.Header)) {
		if name != "Date" && name != "X-Request-Id" {
			fmt.Fprintln(&text, name, resp.Header[name])
		}
	}
	text.WriteString(body)
	return volatile.ReplaceAllString(strings.ReplaceAll(text.String(), set, "SET"), "")
}

// The matrix has a row for each route.
func TestMatrixHasAllRoutes(t *testing.T) {
	router := newRouter(prometheus.NewRegistry(), nil)
	(&site{}).routes(router)
	served := (&ops{health: newHealth(), metrics: prometheus.NewRegistry(), callers: &callers{}, log: slog.New(slog.DiscardHandler)}).routes()
	for name, address := range map[string]struct {
		patterns []string
		rows     []row
		handler  func(*http.Request) (http.Handler, string)
	}{
		"site": {slices.Sorted(maps.Keys(router.counters)), siteRows, router.Handler},
		"ops":  {served.patterns, opsRows, served.Handler},
	} {
		rows := map[string]bool{}
		for _, r := range address.rows {
			if r.method == every {
				r.method = http.MethodGet
			}
			_, pattern := address.handler(httptest.NewRequest(r.method, r.url, nil))
			rows[pattern] = true
		}
		if len(address.patterns) < 9 {
			t.Errorf("%s: got the routes %q, want at least 9", name, address.patterns)
		}
		for _, pattern := range address.patterns {
			if !rows[pattern] {
				t.Errorf("%s: got no row for %s", name, pattern)
			}
		}
	}
}
