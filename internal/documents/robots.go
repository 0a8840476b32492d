package documents

import (
	"fmt"
	"net/http"

	"github.com/rshub/rshub/internal/access"
	"github.com/rshub/rshub/internal/problem"
)

// maxSitemaps is the maximum number of lines of robots.txt, of which crawlers read up to 500 KiB.
const maxSitemaps = 5_000

// ServeRobots serves {base}/robots.txt, which crawlers request at the root of a host: the Resource Lists
// of sets with "sitemap" in their description (core section 6.3.4), if the set is public and its
// inventory complete. It returns a 404 if there are none.
func (d *Server) ServeRobots(w http.ResponseWriter, r *http.Request) error {
	w.Header().Add("Vary", "Authorization")
	if err := problem.RequireRead(r, "GET, HEAD"); err != nil {
		return err
	}
	states, err := d.log.Sets(r.Context())
	if err != nil {
		return err
	}
	var text []byte
	lines := 0
	for _, s := range states {
		if !s.Sitemap || s.Private || !access.FromContext(r.Context()).Rights.MaySee(s) || lines == maxSitemaps {
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
		return notFound("no set has \"sitemap\" in its description")
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache")
	_, _ = w.Write(text) // the client may have disconnected
	return nil
}
