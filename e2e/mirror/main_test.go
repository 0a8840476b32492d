// Package mirror tests rsmirror: it mirrors the resources of a hub and an origin to a directory
// despite failures, and audits them.
package mirror

import (
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

func TestMain(m *testing.M) { hubtest.Main(m) }
