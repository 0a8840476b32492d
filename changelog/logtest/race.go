//go:build race

package logtest

const race = true // whether the race detector is on
