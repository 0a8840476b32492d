// Package mirror tests rsmirror: it brings what a hub and an origin have to a directory,
// whatever breaks, and proves it.
package mirror

import (
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

func TestMain(m *testing.M) { hubtest.Main(m) }
