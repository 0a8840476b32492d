// Package callback tests WebSub subscriptions with kills, copies and many callbacks.
package callback

import (
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

func TestMain(m *testing.M) { hubtest.Main(m) }
