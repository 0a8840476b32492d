// Package filelock locks a file for one process, so that two processes do not work in the same
// directory.
//
// The operating system releases the lock when the process ends for any reason.
package filelock
