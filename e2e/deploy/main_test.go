// Package deploy tests the image, the chart and the Compose file.
package deploy

import (
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

func TestMain(m *testing.M) { hubtest.Main(m) }
