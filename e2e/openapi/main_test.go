// Package openapi holds the built hub against the document that describes its HTTP API.
package openapi

import (
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

func TestMain(m *testing.M) { hubtest.Main(m) }
