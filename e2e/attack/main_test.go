// Package attack tests attacks on a hub that others use at the same time.
package attack

import (
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

func TestMain(m *testing.M) { hubtest.Main(m) }
