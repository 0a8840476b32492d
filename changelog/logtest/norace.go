//go:build !race

package logtest

const race = false // reports whether the race detector is enabled
