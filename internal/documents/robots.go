package documents

import (
	"fmt"
	"net/http"

	"github.com/rshub/rshub/internal/access"
	"github.com/rshub/rshub/internal/problem"
)

// mostSitemaps bounds the lines of robots.txt, which crawlers read up to 500 KiB of.
const mostSitemaps = 5_000

// ServeRobots answers {base}/robots.txt, which crawlers look for at the root of a host: the
// Resource Lists of the sets whose descriptions ask for it (core section 6.3.4). It names
// those that everybody may follow, and of which the hub knows all resources. If there is
// none, it returns a 404.
func (d *Server) ServeRobots(w http.ResponseWriter, r *http.Request) error {
	w.Header().Add("Vary", "Authorization")
	if err := problem.OnlyRead(r, "GET, HEAD"); err != nil {
		return err
	}
	states, err := d.log.Sets(r.Context())
	if err != nil {
		return err
	}
	var text []byte
	lines := 0
	for _, s := range states {
		if !s.Sitemap || s.Private || !access.FromContext(r.Context()).Rights.Sees(s) || lines == mostSitemaps {
			continue
		}
		list, _, err := d.ownList(r.Context(), s.Set)
		if err != nil {
			return err
		}
		if list != nil {
			text = fmt.Appendf(text, "Sitemap: %s\n", d.base.ResourceList(s.Set))
			lines++
		}
	}
	if lines == 0 {
		return notFound("no set asks to be named here")
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache")
	_, _ = w.Write(text) // the client may be gone
	return nil
}
