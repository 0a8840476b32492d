// Package publish tests how a source publishes to a hub: with rspublish, which is interrupted, and with pings.
package publish

import (
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

func TestMain(m *testing.M) { hubtest.Main(m) }
