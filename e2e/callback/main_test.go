// Package callback tests WebSub: the checks of the standards, and subscriptions through kills, copies and
// crowds.
package callback

import (
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

func TestMain(m *testing.M) { hubtest.Main(m) }
