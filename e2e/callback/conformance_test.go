package callback

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// TestWebSub checks the hub against the W3C Recommendation of 23 January 2018.
// Each check's name begins with the section it comes from.
func TestWebSub(t *testing.T) { conforms(t, 106, "-level", "must,should", "-run", "^[0-9]") }

// TestChangeNotification checks rshub against the ResourceSync Change
// Notification specification.
func TestChangeNotification(t *testing.T) { conforms(t, 18, "-level", "must,should", "-run", "^CN ") }

// TestExtras checks what rshub adds to WebSub.
func TestExtras(t *testing.T) { conforms(t, 38, "-level", "extra") }

// conforms runs n checks of the program conformance. All have to pass, and none
// is skipped.
func conforms(t *testing.T, n int, flags ...string) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "conformance")
	if out, err := exec.Command("go", "build", "-C", "../..", "-o", program, "./conformance").CombinedOutput(); err != nil {
		t.Fatalf("build conformance: %v\n%s", err, out)
	}
	h := hubtest.StartWebSub(t)
	args := append(flags, "-hub", h.URL+"/hub", "-topic", h.Topic("{}"), "-extras", "-json", "-v")
	p := hubtest.Start(t, nil, nil, program, args...)
	<-p.Done
	for text := range strings.Lines(p.Stdout.String()) {
		var check struct {
			Name, Outcome, Arrived string
			Why                    []string
		}
		hubtest.Decode(t, []byte(text), &check)
		if check.Name == "" {
			continue // the summary
		}
		n--
		t.Run(check.Name, func(t *testing.T) {
			if check.Outcome != "pass" {
				t.Errorf("%s: %q\n%s", check.Outcome, check.Why, check.Arrived)
			}
		})
	}
	if code := p.Cmd.ProcessState.ExitCode(); code != 0 || n != 0 {
		t.Errorf("it ended with %d, and %d checks are missing", code, n)
	}
}
