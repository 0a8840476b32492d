// Package publish tests what is published to a hub, and how: requests good and bad, rspublish, pings.
package publish

import (
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

func TestMain(m *testing.M) { hubtest.Main(m) }
