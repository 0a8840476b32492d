package main

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/pprof"
	"net/url"
	"slices"
	"strings"

	"github.com/rshub/rshub/access"
	"github.com/rshub/rshub/callback"
	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/hub"
	"github.com/rshub/rshub/resourcesync"
	"github.com/rshub/rshub/subscribe"
)

// routes is the hub as its users see it.
func (s *server) routes() http.Handler {
	mux := newRouter(s.metrics)
	mux.handle("/{$}", pageRoute, s.servePage)
	mux.handle("/.well-known/resourcesync", documentsRoute, s.documents.ServeDescription)
	for _, path := range hubPaths {
		mux.handle(path, hubRoute, s.serveHub)
	}
	mux.handle("/subscriptions/{name}", statusRoute, s.serveStatus)
	mux.handle("/sets", setsRoute, s.serveSets)
	mux.handle("/sets/{set}", setsRoute, s.serveSet)
	mux.handle("/sets/{set}/changes", topicRoute, s.serveTopic)
	mux.handle("/sets/{set}/subscriptions", subscriptionsRoute, s.serveSubscriptions)
	mux.handle("/sets/{set}/subscriptions/{id}", subscriptionsRoute, s.serveSubscriptions)
	mux.handle("/sets/{set}/subscriptions/{id}/{part}", subscriptionsRoute, s.serveSubscriptions)
	mux.handle("/sets/{set}/{name...}", documentsRoute, s.serveDocument)
	mux.handle("/", otherRoute, func(w http.ResponseWriter, r *http.Request) {
		changelog.WriteError(w, r, changelog.NewStatus(http.StatusNotFound, "not-found", "there is nothing at this URL; GET / says what is where"))
	})
	return mux.counted(readOn(s.guard(s.identify(mux))))
}

// opsRoutes is the hub as those see it who run it.
func (s *server) opsRoutes() http.Handler {
	mux := http.NewServeMux()
	s.health(mux)
	mux.Handle("GET /metrics", metricsHandler(s.metrics, s.log)) // open as the health is: no set and no callback is named
	operator := func(h http.HandlerFunc) http.Handler {
		return s.identify(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !s.refused(w, r, access.MayOperate(r.Context())) {
				h(w, r)
			}
		}))
	}
	mux.Handle("GET /backup", operator(s.serveBackup))
	mux.Handle("GET /debug/pprof/", operator(pprof.Index))
	mux.Handle("GET /debug/pprof/profile", operator(pprof.Profile))
	mux.Handle("GET /debug/pprof/symbol", operator(pprof.Symbol))
	mux.Handle("GET /debug/pprof/trace", operator(pprof.Trace))
	return s.guard(mux)
}

// serveTopic is the whole API of a set, at one URL.
func (s *server) serveTopic(w http.ResponseWriter, r *http.Request) {
	set := r.PathValue("set")
	if s.refused(w, r, changelog.CheckSet(set)) {
		return
	}
	switch r.Method {
	case http.MethodPost:
		if s.refused(w, r, access.MayPublish(r.Context(), set)) {
			return
		}
		s.hub.ServePublish(w, r, set)
	case http.MethodGet, http.MethodHead:
		if s.refused(w, r, access.MayFollow(r.Context(), set)) {
			return
		}
		w.Header().Set("Link", s.documents.Link(set))
		if subscribe.Wants(r) {
			s.subscribe.ServeHTTP(w, r, set)
		} else {
			s.documents.ServeLatest(w, r, set)
		}
	default:
		changelog.NotAllowed(w, r, "GET, HEAD, POST")
	}
}

// hubPaths are the names of the hub's own URL: the second is what
// resourcesync_push POSTs to, the third is as the draft of 2012 had it.
var hubPaths = []string{"/hub", "/publish", "/subscribe"}

// serveHub takes what is POSTed to the hub's own URL: changes, or the forms of
// WebSub.
func (s *server) serveHub(w http.ResponseWriter, r *http.Request) {
	publish := func(set string) error { return access.MayPublish(r.Context(), set) }
	follow := func(set string) error { return access.MayFollow(r.Context(), set) }
	switch {
	case r.Method == http.MethodPost && callback.IsForm(r.Header):
		s.callback.ServeHub(w, r, follow, publish)
	case r.Method == http.MethodPost && hub.IsPublish(r.Header):
		s.hub.ServeHub(w, r, publish)
	case r.Method == http.MethodPost:
		callback.WriteError(w, changelog.NewStatus(http.StatusUnsupportedMediaType, "unsupported", "to subscribe, or to ping, POST a form here as application/x-www-form-urlencoded; "+
			"changes are sent as application/xml, application/json or application/x-ndjson, with Link headers rel=self (the topic) and rel=hub"))
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, "This is the hub's URL. A topic is "+s.base+"/sets/SET/changes, and "+s.base+"/sets lists the sets.\n"+
			"Sources POST changes here with Link headers rel=self (the topic) and rel=hub, or to the topic itself.\n"+
			"Destinations POST a WebSub form here: hub.mode=subscribe, hub.topic, hub.callback, and hub.secret and hub.lease_seconds if they like.\n"+
			"Sources that only ping POST one with hub.mode=publish and hub.topic: the Change List that the set is described with is read.\n")
	default:
		changelog.NotAllowed(w, r, "GET, HEAD, POST")
	}
}

// serveSubscriptions shows the operator the WebSub subscriptions of a set, and
// takes what he wants of one.
func (s *server) serveSubscriptions(w http.ResponseWriter, r *http.Request) {
	set, id := r.PathValue("set"), r.PathValue("id")
	if s.refused(w, r, changelog.CheckSet(set)) || s.refused(w, r, access.MayOperate(r.Context())) {
		return
	}
	if id == "" {
		s.refused(w, r, s.callback.ServeSubscriptions(w, r, set))
	} else {
		s.refused(w, r, s.callback.ServeSubscription(w, r, set, id, r.PathValue("part")))
	}
}

// serveStatus shows a subscriber how its subscription is; the URL is the right
// to see it.
func (s *server) serveStatus(w http.ResponseWriter, r *http.Request) {
	s.refused(w, r, s.callback.ServeStatus(w, r, r.PathValue("name")))
}

func (s *server) serveDocument(w http.ResponseWriter, r *http.Request) {
	set, name := r.PathValue("set"), r.PathValue("name")
	rule := changelog.CheckSet(set)
	if more, ok := strings.CutSuffix(name, "/changes"); ok && rule == nil {
		rule = changelog.CheckSet(set + "/" + more) // meant as a topic, with a slash in the set's name
	}
	if s.refused(w, r, rule) || s.refused(w, r, access.MayFollow(r.Context(), set)) {
		return
	}
	s.documents.ServeSet(w, r, set, name)
}

// A setView is a set as the API shows it.
type setView struct {
	Set            string `json:"set"`
	Title          string `json:"title,omitempty"`
	DescribedBy    string `json:"describedby,omitempty"`
	ChangeList     string `json:"changelist,omitempty"` // the source's own, for those who may have set it
	Topic          string `json:"topic"`
	CapabilityList string `json:"capabilitylist"`
	Begin          string `json:"begin"` // when its log began
	Floor          string `json:"floor"` // cursor before the oldest change that is kept
	Head           string `json:"head"`  // cursor of the newest change
	Changes        uint64 `json:"changes"`
	Updated        string `json:"updated,omitempty"` // datetime of the newest change
}

func (s *server) view(st changelog.State, rights access.Rights) setView {
	v := setView{
		Set: st.Set, Title: st.Title, DescribedBy: st.DescribedBy,
		Topic: s.documents.Topic(st.Set), CapabilityList: s.documents.CapabilityList(st.Set),
		Begin: string(resourcesync.AppendTimeMicro(nil, st.Begin)),
		Floor: st.Floor.String(), Head: st.Head.String(), Changes: st.Head.Position - st.Floor.Position,
	}
	if rights.Publish(st.Set) || rights.Operate() {
		v.ChangeList = st.ChangeList // its path or query may be a secret
	}
	if v.Changes > 0 {
		v.Updated = string(resourcesync.AppendTimeMicro(nil, st.Head.Micros))
	}
	return v
}

// visible returns the sets that the caller may follow.
func (s *server) visible(r *http.Request) ([]setView, error) {
	states, err := s.memory.Sets(r.Context())
	if err != nil {
		return nil, err
	}
	caller := access.FromContext(r.Context())
	views := []setView{}
	for _, st := range states {
		if caller.Rights.Follow(st.Set) {
			views = append(views, s.view(st, caller.Rights))
		}
	}
	return views, nil
}

func (s *server) serveSets(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		changelog.NotAllowed(w, r, "GET, HEAD")
		return
	}
	views, err := s.visible(r)
	if s.refused(w, r, err) {
		return
	}
	w.Header().Add("Vary", "Authorization")
	writeJSON(w, http.StatusOK, map[string]any{"sets": views})
}

// maxDescription bounds the body that describes a set, in bytes.
const maxDescription = 16 << 10

func (s *server) serveSet(w http.ResponseWriter, r *http.Request) {
	ctx, set := r.Context(), r.PathValue("set")
	if s.refused(w, r, changelog.CheckSet(set)) {
		return
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		if s.refused(w, r, access.MayFollow(ctx, set)) {
			return
		}
	case http.MethodPut:
		if s.refused(w, r, access.MayPublish(ctx, set)) {
			return
		}
		d, err := readDescription(http.MaxBytesReader(w, r.Body, maxDescription))
		if err == nil && d.ChangeList != "" {
			err = s.engine.CheckChangeList(d.ChangeList) // pings will fetch it
		}
		if s.refused(w, r, err) || s.refused(w, r, s.hub.Describe(ctx, set, d)) {
			return
		}
	case http.MethodDelete:
		if s.refused(w, r, access.MayOperate(ctx)) || s.refused(w, r, s.hub.Delete(ctx, set)) {
			return
		}
		w.WriteHeader(http.StatusNoContent)
		return
	default:
		changelog.NotAllowed(w, r, "DELETE, GET, HEAD, PUT")
		return
	}
	st, err := s.memory.State(ctx, set)
	if s.refused(w, r, err) {
		return
	}
	writeJSON(w, http.StatusOK, s.view(st, access.FromContext(ctx).Rights))
}

func readDescription(body io.Reader) (changelog.Description, error) {
	var d changelog.Description
	decoder := json.NewDecoder(body)
	decoder.DisallowUnknownFields()
	err := decoder.Decode(&d)
	if err == nil {
		if _, more := decoder.Token(); more != io.EOF {
			err = errors.New("something follows it")
		}
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return d, err
	}
	if err != nil {
		return d, changelog.Invalid(`the body is not {"title": "…", "describedby": "URI", "changelist": "URL"}: %v`, err)
	}
	if len(d.Title) > 1000 || strings.ContainsFunc(d.Title, func(c rune) bool { return c < ' ' || c == 0xFFFD }) {
		return d, changelog.Invalid("title is one line of at most 1,000 bytes")
	}
	switch {
	case d.DescribedBy == "":
		return d, nil
	case !strings.HasPrefix(d.DescribedBy, "https://") && !strings.HasPrefix(d.DescribedBy, "http://"):
		return d, changelog.Invalid("describedby is a URI that begins with https:// or http://") // a browser follows it
	}
	return d, resourcesync.CheckURI("describedby", d.DescribedBy)
}

// identify puts the caller into the request's context.
func (s *server) identify(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller := access.Caller{Rights: access.All()}
		if s.tokens != nil {
			var err error
			if caller, err = s.tokens.Caller(r); s.refused(w, r, err) {
				return
			}
		}
		next.ServeHTTP(w, r.WithContext(access.NewContext(r.Context(), caller)))
	})
}

// guard keeps web pages of others away from the hub. A page may come from an
// origin that is configured, or from the hub itself. Where no token is needed a
// page could do everything that its reader may: there the Host must be the
// hub's own too, else a name that was rebound to this machine would do.
func (s *server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.tokens == nil && s.config.Insecure == "" && !s.ownHost(r.Host) {
			s.refused(w, r, changelog.NewStatus(http.StatusMisdirectedRequest, "wrong-host", "this hub is not "+r.Host+"; it is reached as "+s.base))
			return
		}
		w.Header().Add("Vary", "Origin") // also where there is none: a cache may keep the answer
		if origin := r.Header.Get("Origin"); origin != "" {
			if !s.allowedOrigin(r) {
				s.refused(w, r, changelog.NewStatus(http.StatusForbidden, "origin", "pages of "+origin+" may not use this hub; RSHUB_ORIGINS allows them"))
				return
			}
			h := w.Header()
			h.Set("Access-Control-Allow-Origin", origin)
			h.Set("Access-Control-Expose-Headers", "ETag, Link, Last-Modified, Retry-After, RS-Diverged, X-Request-Id")
			if r.Method == http.MethodOptions {
				h.Set("Access-Control-Allow-Methods", "DELETE, GET, HEAD, POST, PUT")
				h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, Idempotency-Key, If-None-Match, Last-Event-ID, Link")
				h.Set("Access-Control-Max-Age", "600")
				w.WriteHeader(http.StatusNoContent)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// ownHost reports whether a Host header names this hub or this machine.
func (s *server) ownHost(host string) bool {
	u, err := url.Parse("http://" + host)
	if err != nil {
		return false
	}
	base, err := url.Parse(s.base)
	return err == nil && (loopback(u.Hostname()) || strings.EqualFold(u.Host, base.Host))
}

// allowedOrigin reports whether the page that makes r may.
func (s *server) allowedOrigin(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" || slices.Contains(s.config.Origins, "*") || slices.Contains(s.config.Origins, origin) {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, r.Host)
}

// refused answers with err, if there is one: to a form for the hub with a line of
// text, as WebSub has it.
func (s *server) refused(w http.ResponseWriter, r *http.Request, err error) bool {
	if err == nil {
		return false
	}
	var p *changelog.Problem
	if slices.Contains(hubPaths, r.URL.Path) && callback.IsForm(r.Header) {
		p = callback.WriteError(w, err)
	} else {
		p = changelog.WriteError(w, r, err)
	}
	if p.Status == http.StatusInternalServerError {
		s.log.ErrorContext(r.Context(), "request failed", "method", r.Method, "path", shownPath(r.URL.Path), "err", err)
	}
	return true
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client may be gone
}
