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
	Fixed   bool   // whether the sets are configured, so that a publish creates none
	Tokens  bool   // whether the hub has tokens, so that people can sign in
	Holds   bool   // whether the hub has inventories
}

// A Server serves the page of a hub.
type Server struct {
	sets Sets
	base feed.Base
	opts Options
}

// New returns the Server of the hub with the given base URL.
func New(sets Sets, base feed.Base, o Options) *Server {
	return &Server{sets: sets, base: base, opts: o}
}

// A Set is a row of the list of sets that the page shows without JavaScript.
type Set struct {
	Name, Title string
	DescribedBy string // URL; may be empty
	Changes     uint64 // number of stored changes
	Updated     string // datetime of the newest change, or empty
	Held        bool   // whether the set has an inventory
}

// isRead reports whether the method of r is GET or HEAD.
func isRead(r *http.Request) bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }

// WantsHTML reports whether r is a GET or HEAD whose Accept header names text/html and prefers it
// to JSON.
func WantsHTML(r *http.Request) bool {
	return isRead(r) && accept.Names(r.Header, mediaType) && accept.Media(r.Header, "application/json", mediaType) == mediaType
}

// IsNavigation reports whether r comes from a person who opens a URL in a browser. It is stricter
// than WantsHTML: programs request the documents of the standard, too, and some libraries, such as
// Java's, prefer HTML without reading it.
func IsNavigation(r *http.Request) bool {
	if !WantsHTML(r) || accept.Media(r.Header, "application/xml", mediaType) != mediaType {
		return false
	}
	if to := r.Header.Get("Sec-Fetch-Dest"); to != "" {
		return to == "document"
	}
	return strings.HasPrefix(r.UserAgent(), "Mozilla/") // browsers send Sec-Fetch-Dest only to secure origins
}

const mediaType = "text/html"

// A pageData is the data of the page's template.
type pageData struct {
	Base          feed.Base
	Options       Options
	Assets, Root  string // relative URLs, so that the page works under any name and path of the hub
	Modules       []string
	View          string // view for the scripts to show
	Title         string
	Set           string // set of the view; empty if it has none
	Example, Held string // sets in example commands; Held is empty if no set has an inventory
	Sets          []Set
	More          int
	None          bool // whether the set does not exist or is private
}

// serveOverview serves the view of the whole hub. Without JavaScript it lists sets, and says how
// many more there are.
func (s *Server) serveOverview(w http.ResponseWriter, r *http.Request, sets []Set, more int) {
	v := pageData{View: "overview", Title: "rshub", Root: "./", Sets: sets, More: more, Example: "demo"}
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

// serveSet serves the view of a set. set is nil if the set does not exist or the caller may not
// see it; the response must be the same in both cases. A browser sends no token when it opens a
// URL, so the scripts request the set again with the token of the signed-in user.
func (s *Server) serveSet(w http.ResponseWriter, r *http.Request, name string, set *Set, status int) {
	v := pageData{View: "set", Title: name + " · rshub", Root: "../", Set: name, Example: name, None: set == nil}
	if set != nil {
		v.Sets = []Set{*set}
		if set.Held {
			v.Held = name
		}
	}
	s.serve(w, r, status, v)
}

// ServeSubscription serves the view of a subscription at the URL of its status.
func (s *Server) ServeSubscription(w http.ResponseWriter, r *http.Request) {
	s.serve(w, r, http.StatusOK, pageData{View: "subscription", Title: "Subscription · rshub", Root: "../"})
}

// ServeDocument serves the view of the ResourceSync document at the URL of the request, which the
// scripts read as XML from the same URL. The view is the same if the document is private or does
// not exist. set is empty for the Source Description of the hub.
func (s *Server) ServeDocument(w http.ResponseWriter, r *http.Request, set string) {
	name := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	depth := strings.Count(r.URL.Path, "/") - 1
	s.serve(w, r, http.StatusOK, pageData{View: "document", Title: name + " · rshub", Root: "./" + strings.Repeat("../", depth), Set: set})
}

// Policy is the Content-Security-Policy of the page: its own scripts, styles and images, and
// requests to the hub.
const Policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

func (s *Server) serve(w http.ResponseWriter, _ *http.Request, status int, v pageData) {
	v.Base, v.Options, v.Assets, v.Modules = s.base, s.opts, v.Root+"page/"+version+"/", modules
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", Policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = pageTemplate.Execute(w, v) // the client may be gone
}
