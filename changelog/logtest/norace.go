//go:build !race

package logtest

const race = false // whether the race detector is on
