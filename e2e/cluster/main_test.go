// Package cluster tests several hubs on one Redis and one NATS, which fail.
package cluster

import (
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

func TestMain(m *testing.M) { hubtest.Main(m) }
