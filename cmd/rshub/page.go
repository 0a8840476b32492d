package main

import (
	_ "embed"
	"html/template"
	"net/http"

	"github.com/rshub/rshub/changelog"
)

//go:embed page.html
var pageHTML string

var pageTemplate = template.Must(template.New("page").Parse(pageHTML))

// maxShown bounds how many sets the page shows.
const maxShown = 200

// servePage says to people what runs here.
func (s *server) servePage(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		changelog.NotAllowed(w, r, "GET, HEAD")
		return
	}
	views, err := s.visible(r)
	if s.refused(w, r, err) {
		return
	}
	page := struct {
		Base, Version, Example string
		Sets                   []setView
		More                   int
		Configured             bool // which sets there are
		Tokens                 bool // who publishes needs one
	}{Base: s.base, Version: version(), Example: "demo", Sets: views, Configured: len(s.config.Sets) > 0, Tokens: s.tokens != nil}
	if len(views) > maxShown {
		page.Sets, page.More = views[:maxShown], len(views)-maxShown
	}
	if len(views) > 0 {
		page.Example = views[0].Set
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Add("Vary", "Authorization")
	_ = pageTemplate.Execute(w, page) // the client may be gone
}
