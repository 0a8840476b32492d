// Package attack tests what those who mean harm try, on a hub that others use at the same
// time.
package attack

import (
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

func TestMain(m *testing.M) { hubtest.Main(m) }
