//go:build linux

package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const clockTick = 100 // USER_HZ on Linux: CPU times come in steps of 10 ms

// A sample is a measurement of one piece of work. Each part sets the fields that it needs.
type sample struct {
	seconds  float64
	cpu      float64 // seconds, of the servers; of this process where there is none
	own      float64 // seconds, of this process
	others   float64 // share of the machine that neither the servers nor the bench took
	count    float64 // of what was done
	p50, p99 float64 // ms
	memory   float64 // bytes
	each     []float64
}

// measure runs f, and returns its duration and the CPU time of this process and of the servers
// during it.
func measure(f func(), servers ...*server) (s sample) {
	cpu := func() (sum float64) {
		for _, s := range servers {
			sum += cpuOf(s.pid)
		}
		return sum
	}
	used, own := cpu(), ownCPU()
	busy, all := machineCPU()
	begin := time.Now()
	f()
	s.seconds = time.Since(begin).Seconds()
	s.own, s.cpu = ownCPU()-own, cpu()-used
	busyNow, allNow := machineCPU()
	if allNow > all {
		s.others = max(0, busyNow-busy-s.own-s.cpu) / (allNow - all)
	}
	if len(servers) == 0 {
		s.cpu = s.own
	}
	return s
}

// cpuOf returns the user and system time of a process in seconds.
func cpuOf(pid int) float64 {
	s := string(have(os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))))
	f := strings.Fields(s[strings.LastIndexByte(s, ')')+1:]) // the name in front may have spaces
	return (have(strconv.ParseFloat(f[11], 64)) + have(strconv.ParseFloat(f[12], 64))) / clockTick
}

// ownCPU returns the user and system time of this process in seconds.
func ownCPU() float64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

// machineCPU returns the busy and the total time of all cores in seconds, to detect other
// processes.
func machineCPU() (busy, all float64) {
	b, _ := os.ReadFile("/proc/stat")
	line, _, _ := strings.Cut(string(b), "\n")
	for i, f := range strings.Fields(line) {
		if i == 0 || i > 8 { // the name; guests are in user already
			continue
		}
		v, _ := strconv.ParseFloat(f, 64)
		all += v
		if i != 4 && i != 5 { // idle, iowait
			busy += v
		}
	}
	return busy / clockTick, all / clockTick
}

// rssOf returns the resident memory of a process in bytes.
func rssOf(pid int) float64 { return status(pid, "VmRSS:") }

// peakOf returns the peak resident memory of a process since restPeak, in bytes.
func peakOf(pid int) float64 { return status(pid, "VmHWM:") }

// restPeak resets the peak memory of a process to its current memory, and returns it.
func restPeak(pid int) float64 {
	const peakOnly = "5" // see proc(5), clear_refs
	must(os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte(peakOnly), 0))
	return rssOf(pid)
}

// status returns the value of a line of a process's status in bytes.
func status(pid int, name string) float64 {
	_, rest, _ := strings.Cut(string(have(os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)))), name)
	line, _, _ := strings.Cut(rest, "kB")
	return 1024 * have(strconv.ParseFloat(strings.TrimSpace(line), 64))
}

// settle is how long a server is left alone before its memory is read.
const settle = 1500 * time.Millisecond

// rest waits until a server is idle.
func (b *bench) rest(s *server) {
	const idle = 0.02 // seconds of CPU, of which two are steps of the clock
	for used := 1.0; used > idle; {
		before := cpuOf(s.pid)
		time.Sleep(settle)
		used = cpuOf(s.pid) - before
		must(b.ctx.Err())
	}
}
