package server

import (
	_ "embed"
	"html/template"
	"net/http"

	"github.com/rshub/rshub/access"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/problem"
)

//go:embed page.html
var pageHTML string

var pageTemplate = template.Must(template.New("page").Parse(pageHTML))

// maxShown bounds how many sets the page shows.
const maxShown = 200

// A page is the web page that shows people what runs here.
type page struct {
	base       feed.Base
	version    string
	sets       *sets
	configured bool // Config.Sets is not empty
	tokens     bool // publishers need a token
	holds      bool // the hub keeps what sets hold
}

func (p *page) serve(w http.ResponseWriter, r *http.Request) error {
	if err := problem.OnlyRead(r, "GET, HEAD"); err != nil {
		return err
	}
	states, err := p.sets.visible(r)
	if err != nil {
		return err
	}
	shown := struct {
		Base               feed.Base
		Version, Example   string
		Held               string // a set that has an inventory; empty: none has
		Sets               []setView
		More               int
		Configured, Tokens bool
	}{Base: p.base, Version: p.version, Example: "demo", Configured: p.configured, Tokens: p.tokens}
	rights := access.FromContext(r.Context()).Rights
	for _, st := range states[:min(len(states), maxShown)] {
		shown.Sets = append(shown.Sets, p.sets.view(st, rights))
		if p.holds && !st.NoInventory && shown.Held == "" {
			shown.Held = st.Set
		}
	}
	shown.More = len(states) - len(shown.Sets)
	if len(shown.Sets) > 0 {
		shown.Example = shown.Sets[0].Set
	} else if p.holds {
		shown.Held = shown.Example
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Add("Vary", "Authorization")
	_ = pageTemplate.Execute(w, shown) // the client may be gone
	return nil
}
