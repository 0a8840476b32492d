// Package follow tests followers of a hub: WebSockets, event streams, pages, browsers.
package follow

import (
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

func TestMain(m *testing.M) { hubtest.Main(m) }
