// Package filelock locks a file for one process, so that two runs of a program do not work
// in the same directory.
package filelock
