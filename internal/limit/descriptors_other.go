//go:build !unix

package limit

import "errors"

// descriptorLimit returns an error: there is no such limit here, or nobody tells it.
func descriptorLimit() (int64, error) { return 0, errors.ErrUnsupported }
