// Package dialects tests that a follower may go on in another dialect at any change.
package dialects

import (
	"os"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// The program of the tests is also that of their followers.
func TestMain(m *testing.M) {
	if os.Getenv(asFollower) != "" {
		beFollower()
		return
	}
	hubtest.Main(m)
}
