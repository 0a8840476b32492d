// Package dialect tests followers that read one memory in the formats of several standards.
package dialect

import (
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

func TestMain(m *testing.M) { hubtest.Main(m) }
