// Package cluster tests several hubs with one Redis and one NATS, and their failures.
package cluster

import (
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

func TestMain(m *testing.M) { hubtest.Main(m) }
