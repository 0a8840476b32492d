// Package callback tests WebSub subscriptions through kills, copies and crowds.
package callback

import (
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

func TestMain(m *testing.M) { hubtest.Main(m) }
