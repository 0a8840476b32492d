package hubtest

import (
	"testing"

	"github.com/rshub/rshub/internal/testutil/certtest"
)

// Certificate makes a certificate for 127.0.0.1 and localhost that signs itself, and returns
// the files of it and of its key.
func Certificate(t *testing.T) (cert, key string) {
	t.Helper()
	p := certtest.New(t)
	return p.Cert, p.Key
}
