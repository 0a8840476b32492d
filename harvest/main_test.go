package harvest

import (
	"testing"

	"github.com/rshub/rshub/internal/memorytest"
)

func TestMain(m *testing.M) { memorytest.Main(m) }
