package smoke

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/internal/testutil/pagetest"
)

var (
	// begun is what a command that runs on prints when it has begun: the hub, that it
	// listens; who follows, where.
	begun = regexp.MustCompile(`"rshub is running"|"cursor":`)
	// resource is what a command names that publishes a change.
	resource = regexp.MustCompile(`https://example\.org/[a-z]+`)
)

// TestReadme types what "Try it" in README.md says, each block in a terminal of its own,
// with the programs that are built already and a hub at another address. Each command ends
// well and prints what the page says, and the event stream shows every change.
func TestReadme(t *testing.T) {
	t.Parallel()
	address := hubtest.FreePort(t)
	env := []string{
		"PATH=" + filepath.Dir(hubtest.Rshub) + string(filepath.ListSeparator) + os.Getenv("PATH"), "no_proxy=127.0.0.1",
		"RSHUB_LISTEN=" + address, "RSHUB_OPS_LISTEN=127.0.0.1:0", "RSPUBLISH_HUB=http://" + address,
	}
	here := strings.NewReplacer("127.0.0.1:8080", address, "go run ./cmd/", "")
	var stream *hubtest.Process
	published := 0
	for _, b := range pagetest.Blocks(t, "../../README.md") {
		_, not := b.Mark("not run")
		if b.Heading != "Try it" || b.Language != "sh" || not {
			continue
		}
		p := hubtest.Start(t, env, nil, "sh", "-c", here.Replace(b.Text))
		if _, ok := b.Mark("runs on"); ok {
			hubtest.Until(t, "it has begun: "+b.Text, func() error {
				if said := p.Stdout.String() + p.Stderr.String(); !begun.MatchString(said) {
					return errors.New("it says: " + said)
				}
				return nil
			})
			stream = p // the last one that runs on is the one that follows
			continue
		}
		says, _ := b.Mark("shows")
		if code := p.Wait(); code != 0 || !strings.Contains(p.Stdout.String(), says) {
			t.Fatalf("%send with %d, and do not show %q: %s%s", b.Text, code, says, p.Stdout, p.Stderr)
		}
		loc := resource.FindString(b.Text)
		if loc == "" || stream == nil {
			t.Fatalf("the block publishes nothing that anybody follows:\n%s", b.Text)
		}
		hubtest.Until(t, "the event stream shows "+loc, func() error {
			if said := stream.Stdout.String(); !strings.Contains(said, `"loc":"`+loc+`"`) {
				return errors.New("it shows: " + said)
			}
			return nil
		})
		published++
	}
	if published < 2 {
		t.Errorf("README.md publishes %d changes: one with rspublish and one with curl are due", published)
	}
}
