package hubtest

import (
	"testing"

	"github.com/rshub/rshub/internal/testutil/certtest"
)

// Certificate creates a self-signed certificate for 127.0.0.1 and localhost. It returns the
// files of the certificate and its key.
func Certificate(t *testing.T) (cert, key string) {
	t.Helper()
	p := certtest.New(t)
	return p.Cert, p.Key
}
