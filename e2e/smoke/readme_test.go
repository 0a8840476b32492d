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
	// started matches the output of a command that keeps running after it has started: the log
	// line of the hub, or the first cursor of a follower.
	started = regexp.MustCompile(`"rshub is running"|"cursor":`)
	// resource matches the loc in a command that publishes a change.
	resource = regexp.MustCompile(`https://example\.org/[a-z]+`)
)

// TestReadme runs the commands under "Try it" in README.md, each block in its own shell, with the
// built programs and a hub at another address. Each command succeeds with the documented output,
// and the event stream has every change.
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
			hubtest.Until(t, "the command has started: "+b.Text, func() error {
				if out := p.Stdout.String() + p.Stderr.String(); !started.MatchString(out) {
					return errors.New("got output: " + out)
				}
				return nil
			})
			stream = p // the last running command is the follower
			continue
		}
		says, _ := b.Mark("shows")
		if code := p.Wait(); code != 0 || !strings.Contains(p.Stdout.String(), says) {
			t.Fatalf("%sexited with %d, want 0 and output %q: %s%s", b.Text, code, says, p.Stdout, p.Stderr)
		}
		loc := resource.FindString(b.Text)
		if loc == "" || stream == nil {
			t.Fatalf("block publishes no change, or no follower is running:\n%s", b.Text)
		}
		hubtest.Until(t, "the event stream has "+loc, func() error {
			if out := stream.Stdout.String(); !strings.Contains(out, `"loc":"`+loc+`"`) {
				return errors.New("got: " + out)
			}
			return nil
		})
		published++
	}
	if published < 2 {
		t.Errorf("README.md publishes %d changes, want one with rspublish and one with curl", published)
	}
}
