package discovery_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/rshub/rshub/internal/source/discovery"
)

// A site that describes itself with very many entries uses little memory: a hub reads many sites at
// the same time, and any client may name one.
func TestFindBoundsMemory(t *testing.T) {
	t.Parallel()
	description := func(n int) string {
		var sets strings.Builder
		for i := range n {
			fmt.Fprintf(&sets, "<url><loc>/%d</loc></url>", i)
		}
		return document("urlset", "description", sets.String())
	}
	s := site{"/some": description(1000), "/many": description(10_000)}
	var index strings.Builder
	for i := range 10 {
		name := fmt.Sprintf("/many?%d", i)
		s[name] = s["/many"]
		index.WriteString("<sitemap><loc>" + name + "</loc></sitemap>")
	}
	s["/index"] = document("sitemapindex", "description", index.String())
	base := s.start(t)
	if _, err := discovery.Find(t.Context(), getter(), base+"/index"); err == nil || !strings.Contains(err.Error(), "MiB of memory") {
		t.Errorf("Find() error = %.200v, want the limit in MiB of memory", err)
	}
	_, err := discovery.Find(t.Context(), getter(), base+"/some")
	if several, ok := errors.AsType[*discovery.MultipleSets](err); !ok || len(several.Sets) != 1000 {
		t.Errorf("Find() error = %.200v, want *MultipleSets with 1,000 sets", err)
	}
}
