//go:build !linux

package mirror

import (
	"io/fs"
	"time"
)

// statusChanged returns the zero Time: it is unknown on this system.
func statusChanged(fs.FileInfo) time.Time { return time.Time{} }
