// Package webpage is the web page of a hub. Its HTML shows the essentials to a browser without
// JavaScript. With JavaScript it shows what the hub's own API returns to the caller who is signed
// in.
//
// Scripts, styles and images are embedded, and nothing is loaded from elsewhere. The package reads
// sets through an interface, and knows no store. docs/page.md describes the page; e2e/page tests it
// in a browser.
package webpage

import (
	_ "embed"
	"html/template"
	"net/http"
	"strings"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/accept"
)

//go:embed page.html
var pageHTML string

var pageTemplate = template.Must(template.New("page").Parse(pageHTML))

// Options of a Server. Zero values are the defaults.
type Options struct {
	Version string // version of the hub that the page shows
	Fixed   bool   // a publish makes no set: the sets are configured
	Tokens  bool   // there are tokens, so people can sign in
	Holds   bool   // the hub keeps what sets hold now
}

// A Server serves the page of a hub.
type Server struct {
	sets Sets
	base feed.Base
	opts Options
}

// New returns the Server of the hub whose URLs begin with base.
func New(sets Sets, base feed.Base, o Options) *Server {
	return &Server{sets: sets, base: base, opts: o}
}

// A Set is a set as the page shows it without JavaScript.
type Set struct {
	Name, Title string
	DescribedBy string // URL; may be empty
	Changes     uint64 // how many the memory keeps
	Updated     string // datetime of the newest change; empty: there is none
	Held        bool   // the hub keeps what the set holds
}

// reads reports whether r only reads.
func reads(r *http.Request) bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }

// Wants reports whether r reads, and asks for HTML: its Accept names text/html, and prefers it
// to JSON.
func Wants(r *http.Request) bool {
	return reads(r) && accept.Names(r.Header, mediaType) && accept.Media(r.Header, "application/json", mediaType) == mediaType
}

// Visits reports whether r comes from a person who opens a URL in a browser. It is
// stricter than Wants, because programs also ask for the documents of the standard, and
// some of their libraries, such as that of Java, accept HTML before everything else
// without meaning it. The page that such a person gets is the same for a document that is
// private, and for one that is not there.
func Visits(r *http.Request) bool {
	if !Wants(r) || accept.Media(r.Header, "application/xml", mediaType) != mediaType {
		return false
	}
	if to := r.Header.Get("Sec-Fetch-Dest"); to != "" {
		return to == "document"
	}
	return strings.HasPrefix(r.UserAgent(), "Mozilla/") // browsers send the header above only to safe origins
}

const mediaType = "text/html"

// A shown is what the template shows.
type shown struct {
	Base          feed.Base
	Options       Options
	Assets, Root  string // relative URLs, so that the page works under every name and path of the hub
	Modules       []string
	View          string // which view the scripts show
	Title         string
	Set           string // the set that the view is about; empty: none
	Example, Held string // sets to show commands with; Held is empty if no set is held
	Sets          []Set
	More          int
	None          bool // there is no such set, or it is private
}

// serveOverview answers with the view of the whole hub. Without JavaScript it shows
// sets, and says that there are more others.
func (s *Server) serveOverview(w http.ResponseWriter, r *http.Request, sets []Set, more int) {
	v := shown{View: "overview", Title: "rshub", Root: "./", Sets: sets, More: more, Example: "demo"}
	for _, set := range sets {
		if set.Held {
			v.Held = set.Name
			break
		}
	}
	if len(sets) > 0 {
		v.Example = sets[0].Name
	} else if s.opts.Holds {
		v.Held = v.Example
	}
	s.serve(w, r, http.StatusOK, v)
}

// serveSet answers with the view of a set. set is nil if the caller may not see the set,
// or there is none: the answer must not tell the two apart. A browser sends no token
// when it opens a URL, so the scripts ask again with the token of the caller who is signed in.
func (s *Server) serveSet(w http.ResponseWriter, r *http.Request, name string, set *Set, status int) {
	v := shown{View: "set", Title: name + " · rshub", Root: "../", Set: name, Example: name, None: set == nil}
	if set != nil {
		v.Sets = []Set{*set}
		if set.Held {
			v.Held = name
		}
	}
	s.serve(w, r, status, v)
}

// ServeSubscription answers with the view of a subscription for its subscriber, at the
// URL of its status.
func (s *Server) ServeSubscription(w http.ResponseWriter, r *http.Request) {
	s.serve(w, r, http.StatusOK, shown{View: "subscription", Title: "Subscription · rshub", Root: "../"})
}

// ServeDocument answers with the view of a document of the standard, which is at the
// URL of the request. Its bytes are not touched: the scripts read them there, as XML.
// set is empty for the Source Description of the hub.
func (s *Server) ServeDocument(w http.ResponseWriter, r *http.Request, set string) {
	name := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	depth := strings.Count(r.URL.Path, "/") - 1
	s.serve(w, r, http.StatusOK, shown{View: "document", Title: name + " · rshub", Root: "./" + strings.Repeat("../", depth), Set: set})
}

// Policy is what the page allows a browser to load: its own scripts, styles and images,
// and the hub's own answers.
const Policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

func (s *Server) serve(w http.ResponseWriter, _ *http.Request, status int, v shown) {
	v.Base, v.Options, v.Assets, v.Modules = s.base, s.opts, v.Root+"page/"+version+"/", modules
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", Policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = pageTemplate.Execute(w, v) // the client may be gone
}
