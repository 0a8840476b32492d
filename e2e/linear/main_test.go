// Package linear tests that two hubs on one Redis look like one: every history of
// publishing, reading, describing and deleting a set, under faults, must be one that a
// single memory could have given, which does one thing after the other (linearizability).
package linear

import (
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

func TestMain(m *testing.M) { hubtest.Main(m) }
