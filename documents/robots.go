package documents

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strconv"

	"github.com/rshub/rshub/access"
	"github.com/rshub/rshub/problem"
)

// maxRobots bounds the sets that robots.txt names: crawlers read the first 500 KiB of it
// (RFC 9309 section 2.5).
const maxRobots = 1_000

// ServeRobots answers /robots.txt at the root of a host: the Resource Lists of the sets that
// the caller may see, for crawlers that know Sitemaps and not ResourceSync (core section
// 6.3.4). It forbids crawlers nothing. Of more than 1,000 sets it names the first 1,000, and
// says in a comment where the others are.
func (d *Server) ServeRobots(w http.ResponseWriter, r *http.Request) error {
	h := w.Header()
	h.Add("Vary", "Authorization")
	if err := problem.OnlyRead(r, "GET, HEAD"); err != nil {
		return err
	}
	text, err := d.robots(r.Context())
	if err != nil {
		return err
	}
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	h.Set("Content-Length", strconv.Itoa(len(text)))
	if r.Method != http.MethodHead {
		_, _ = w.Write(text) // the client may be gone
	}
	return nil
}

func (d *Server) robots(ctx context.Context) ([]byte, error) {
	states, err := d.log.Sets(ctx)
	if err != nil {
		return nil, err
	}
	text := []byte("User-agent: *\nAllow: /\n\n")
	named, others := 0, 0
	for _, s := range states {
		if !access.FromContext(ctx).Rights.Sees(s) {
			continue
		}
		if named == maxRobots {
			others++
			continue
		}
		own, err := d.ownResourceList(ctx, s)
		if err != nil {
			return nil, err
		}
		if list := cmp.Or(own, s.ResourceList); list != "" {
			text = append(append(append(text, "Sitemap: "...), list...), '\n')
			named++
		}
	}
	if others > 0 {
		text = fmt.Appendf(text, "# %s names the other %d sets.\n", d.base.Description(), others)
	}
	return text, nil
}
