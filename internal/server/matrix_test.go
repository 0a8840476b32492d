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

// The sets of a caller. Their names are equally long, so that answers are, too.
const (
	public = "public"
	hidden = "hidden" // private
	absent = "absent" // not there
)

// A matrix is a hub where every kind of caller makes every request for each of its sets.
type matrix struct {
	*started
	anyone   []right // what callers without a token may do
	owner    string  // Authorization of who may do everything
	callback string  // URL; it confirms all that it is asked
	client   http.Client
	status   sync.Map    // ends of the URLs of the status of subscriptions, by set
	list     sync.Map    // names of the first Change List, by set
	once     *sync.Map   // rows that were made, by any hub
	alone    *sync.Mutex // held while one of them is made
}

// A cell is one request of one caller for one set.
type cell struct {
	row
	kind
	authorized string            // header
	tickets    map[string]string // by set
	set        string
}

// may reports whether the caller's own rights allow the request.
func (c *cell) may() bool {
	k := c.by(c.method)
	return c.needs == open || !k.bad && (c.needs == nothing || slices.Contains(k.has, c.needs))
}

// want returns the status that a cell has. What anyone may do counts for sets that are
// public, and a publish that anyone may make also makes a set.
func (m *matrix) want(c *cell) int {
	granted, k := c.there, c.by(c.method)
	if strings.HasSuffix(c.set, absent) {
		granted = c.absent
	}
	switch {
	case c.may():
		return granted
	case k.bad:
		return http.StatusUnauthorized
	case !slices.Contains(m.anyone, c.needs) && k.nameless:
		return http.StatusUnauthorized
	case !slices.Contains(m.anyone, c.needs):
		return http.StatusForbidden
	case strings.HasSuffix(c.set, public), c.makes && strings.HasSuffix(c.set, absent):
		return granted
	case c.needs == follow && strings.HasSuffix(c.set, hidden) && slices.Contains(k.has, publish):
		return http.StatusForbidden // who may publish to a private set knows it
	}
	return http.StatusNotFound
}

// Every request by every kind of caller, for a public set, a private set and one that is
// not there, has the status that its right says. Whoever may neither follow a private set nor
// publish to it sees no difference between it and a set that is not there.
func TestMatrix(t *testing.T) {
	t.Parallel()
	var once sync.Map
	var alone sync.Mutex
	for _, hub := range []struct {
		name, anyone string
		has          []right
		tries        func(k kind) bool
		all          []string // callers that make every request with -short
	}{
		{"open", "follow:*", []right{follow}, func(kind) bool { return true },
			[]string{"none", "follow", "publish", "operate", "token for another set", "unknown token", "ticket for this set"}},
		{"closed", "", nil, func(k kind) bool {
			return !strings.HasPrefix(k.name, "JWT") && (!k.bad || k.name == "unknown token") && (k.ticket == nil || slices.Contains(curious, k.name))
		}, []string{"none", "token for another set"}},
		{"wide", "follow:*,publish:*", []right{follow, publish}, func(k kind) bool { return k.name == "none" || k.name == "publish" || k.name == "token for another set" },
			[]string{"none"}},
	} {
		t.Run(hub.name, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			m := &matrix{once: &once, alone: &alone, anyone: hub.has, owner: "Bearer " + o.token(allRights)}
			var callers []cell // whose sets begin with cell.set
			for i, k := range kinds() {
				if !hub.tries(k) {
					continue
				}
				c := cell{kind: k, set: fmt.Sprintf("caller%02d-", i)}
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
				m.make(t, shared+set)
			}
			site, ops := allMethods(siteRows, false), allMethods(opsRows, true)
			for _, c := range callers {
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					if !c.bad {
						for _, set := range []string{public, hidden} {
							m.make(t, c.set+set)
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
						m.giveTickets(t, &c)
					}
					for _, c.row = range some(site) {
						m.try(t, m.URL, c)
					}
					for _, c.row = range some(ops) {
						m.try(t, m.Ops, c)
					}
				})
			}
		})
	}
}

// open starts the hub, and a callback.
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
	m.started, m.callback = start(t, c), callback.URL
	m.client = http.Client{
		Transport:     &http.Transport{MaxIdleConnsPerHost: 8, DisableCompression: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       time.Minute,
	}
	t.Cleanup(m.client.CloseIdleConnections)
}

// giveTickets gives a caller a ticket for each of its sets, in place of its token.
func (m *matrix) giveTickets(t *testing.T, c *cell) {
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

// shared begins the names of the sets of all callers whose credentials are refused. They cannot
// change these sets.
const shared = "shared-"

// title is a part of the title of each set.
const title = "the title of"

// make makes a set, or makes it again what it was.
func (m *matrix) make(t *testing.T, set string) {
	t.Helper()
	if strings.HasSuffix(set, absent) {
		m.own(t, set, row{method: "DELETE", url: "/sets/SET", there: 204})
		return
	}
	m.status.Delete(set)
	m.own(t, set, row{method: "POST", url: "/sets/SET/changes", there: 200, body: aPage, headers: asJSON})
	m.own(t, set, row{method: "PUT", url: "/sets/SET", there: 200, headers: asJSON,
		body: fmt.Sprintf(`{"title":"%s SET","changelist":"CALLBACK/changelist.xml","complete":true,"private":%t}`, title, strings.HasSuffix(set, hidden))})
	m.own(t, set, row{method: "POST", url: "/hub", there: 202, body: "hub.mode=subscribe&hub.callback=CALLBACK/SET/kept" + topicField, headers: asForm})
	testutil.Until(t, "there is a subscription of "+set, func() bool {
		resp, _ := m.do(t, m.URL, &cell{row: row{method: "GET", url: "/subscriptions/STATUS"}, authorized: m.owner, set: set})
		return resp.StatusCode == http.StatusOK
	})
	for _, document := range []string{"resourcelist.xml", "changelist-index.xml"} {
		testutil.Until(t, document+" of "+set+" is there", func() bool {
			resp, body := m.do(t, m.URL, &cell{row: row{method: "GET", url: "/sets/SET/" + document}, authorized: m.owner, set: set})
			if list := firstList.FindString(body); list != "" {
				m.list.Store(set, list)
			}
			return resp.StatusCode == http.StatusOK
		})
	}
}

var firstList = regexp.MustCompile(`changelist-[^-/]+-1-[^/]+\.xml`)

// own has the owner make a request.
func (m *matrix) own(t *testing.T, set string, r row) {
	t.Helper()
	if resp, text := m.do(t, m.URL, &cell{row: r, authorized: m.owner, set: set}); resp.StatusCode != r.there {
		t.Errorf("%s %s of %s: %d %s", r.method, r.url, set, resp.StatusCode, text)
	}
}

// do makes the request of a cell, and reads the answer if it ends.
func (m *matrix) do(t *testing.T, base string, c *cell) (*http.Response, string) {
	t.Helper()
	id, status := "aaaaaaaaaaaaaaaaaaaaaaaaaa", "aaaaaaaaaaaaaaaaaaaaaaaaaa.wrong"
	if s, ok := m.status.Load(c.set); ok {
		status = s.(string)
		id, _, _ = strings.Cut(status, ".")
	} else if s, ok := m.status.Load(strings.Replace(c.set, absent, public, 1)); ok { // one of another set
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
	if c.endless && resp.StatusCode < 300 {
		return resp, ""
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return resp, string(text)
}

// lists are the paths that show what sets there are.
var lists = []string{"/", "/sets", "/.well-known/resourcesync"}

// curious are the kinds of callers that try methods that a path does not take. The others
// have the same rights in another way.
var curious = []string{"none", "follow", "publish", "operate", "everything", "token for another set", "unknown token", "JWT EdDSA[follow publish]", "ticket for this set"}

// oneOfEach returns one request of each method for each right, and the lists, without HEAD.
// With -short that is enough for callers who have the same rights in another way, because the
// hub identifies a caller before it looks at the request. It is also enough at the other hubs,
// for callers whose own rights all routes check at the first.
func oneOfEach(rows []row) (some []row) {
	type shape struct {
		method string
		needs  right
		makes  bool
	}
	made := map[shape]bool{}
	for _, r := range rows {
		s := shape{r.method, r.needs, r.makes}
		if r.method != http.MethodHead && (!made[s] || slices.Contains(lists, r.path())) {
			some = append(some, r)
		}
		made[s] = true
	}
	return some
}

// fewMethods returns what leaves out most requests with HEAD, and most with methods that a path
// does not take. With -short that is enough: each of these requests is made by one of n callers,
// and this is caller i.
func fewMethods(i, n int) func(rows []row) []row {
	return func(rows []row) (some []row) {
		for _, r := range rows {
			few := r.refused || r.method == http.MethodHead
			if few {
				i++
			}
			if !few || i%n == 0 {
				some = append(some, r)
			}
		}
		return some
	}
}

// try makes a request for each of the sets of a caller, whose names begin with c.set.
func (m *matrix) try(t *testing.T, base string, c cell) {
	sets := c.set
	if c.refused && !slices.Contains(curious, c.name) {
		return
	}
	if c.once && c.may() {
		if _, made := m.once.LoadOrStore(c.method+c.url, true); made {
			return
		}
		m.alone.Lock()
		defer m.alone.Unlock()
	}
	answers, wants := map[string]string{}, map[string]int{}
	for _, set := range []string{public, hidden, absent} {
		c.set = sets + set
		resp, body := m.do(t, base, &c)
		want := m.want(&c)
		wants[set] = want
		if resp.StatusCode != want {
			t.Errorf("%s for %s: %s %s %q %q is %d, want %d: %.300s", c.name, set, c.method, c.url, c.headers, c.body, resp.StatusCode, want, body)
		}
		if asked := resp.Header.Get("WWW-Authenticate") != ""; asked != (resp.StatusCode == http.StatusUnauthorized) && !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/html") { // a page asks by itself
			t.Errorf("%s: %s %s is answered %d, with WWW-Authenticate: %t", c.name, c.method, c.url, resp.StatusCode, asked)
		}
		if secret := strings.TrimPrefix(c.authorized, "Bearer "); len(secret) > 20 && strings.Contains(body, secret) {
			t.Errorf("%s finds the token in the answer to %s %s: %s", c.name, c.method, c.url, body)
		}
		if set == hidden && strings.Contains(body, title) && !slices.Contains(c.has, follow) && !c.may() {
			t.Errorf("%s sees the title of a private set: %s %s: %s", c.name, c.method, c.url, body)
		}
		answers[set] = seen(resp, body, c.set)
		if c.changes && resp.StatusCode < 300 {
			m.make(t, c.set)
		}
		if !c.named() { // the sets make no difference
			if resp.StatusCode == http.StatusOK && c.method == http.MethodGet && slices.Contains(lists, c.path()) {
				m.checkList(t, sets, &c, resp, body)
			}
			return
		}
		if set == absent && (!c.may() || c.needs == nothing) && want == wants[hidden] && answers[hidden] != answers[absent] {
			t.Errorf("%s sees by %s %s %q %q that the private set is there:\n%s\nand without it:\n%s", c.name, c.method, c.url, c.headers, c.body, answers[hidden], answers[absent])
		}
	}
}

// checkList checks that a list names the sets that a caller may follow, and that no cache
// gives it to another one.
func (m *matrix) checkList(t *testing.T, sets string, c *cell, resp *http.Response, body string) {
	if !strings.Contains(strings.Join(resp.Header.Values("Vary"), ","), "Authorization") {
		t.Errorf("%s varies by %v", c.url, resp.Header.Values("Vary"))
	}
	own := slices.Contains(c.by(c.method).has, follow)
	others := own && c.ticket == nil // a ticket is for one set
	for set, sees := range map[string]bool{public: own || slices.Contains(m.anyone, follow), hidden: others, absent: false} {
		if strings.Contains(body, sets+set) != sees {
			t.Errorf("%s at %s: %s set is there: %t: %s", c.name, c.url, set, !sees, body)
		}
	}
}

// named reports whether the request says which set it is about.
func (r *row) named() bool {
	text := r.url + r.body + strings.Join(r.headers, "")
	return strings.Contains(text, "SET") || strings.Contains(text, "ID")
}

// volatile are the parts of an answer that no two answers share.
var volatile = regexp.MustCompile(`"requestId":"[^"]*"`)

// seen returns all that a caller sees of an answer, with a set's name taken out.
func seen(resp *http.Response, body, set string) string {
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

// Each route has a row in the matrix.
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
			t.Errorf("%s has only the routes %q", name, address.patterns)
		}
		for _, pattern := range address.patterns {
			if !rows[pattern] {
				t.Errorf("%s: the matrix has no row for %s", name, pattern)
			}
		}
	}
}
