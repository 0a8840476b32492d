package main

import "github.com/rshub/rshub/internal/build"

// version is what the log, the page and the metrics call this build.
func version() string { return build.Version() }
