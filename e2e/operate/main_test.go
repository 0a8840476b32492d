// Package operate tests what operators do and see: start, stop, backups, tokens, logs, metrics and
// alerts.
package operate

import (
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

func TestMain(m *testing.M) { hubtest.Main(m) }
