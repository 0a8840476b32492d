//go:build !unix

package limit

import "errors"

// descriptorLimit returns errors.ErrUnsupported, because the limit is unknown or does not exist.
func descriptorLimit() (int64, error) { return 0, errors.ErrUnsupported }
