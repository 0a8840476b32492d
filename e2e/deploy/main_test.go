// Package deploy tests what rshub is deployed with: the image, the chart, compose.
package deploy

import (
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

func TestMain(m *testing.M) { hubtest.Main(m) }
