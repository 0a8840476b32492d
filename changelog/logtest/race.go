//go:build race

package logtest

const race = true // reports whether the race detector is enabled
