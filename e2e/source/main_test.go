// Package source tests rspublish sync and watch, with programs that are killed.
package source

import (
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

func TestMain(m *testing.M) { hubtest.Main(m) }
