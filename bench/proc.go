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

// cpuOf returns the user and system seconds of a process, all threads.
func cpuOf(pid int) (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	s := string(b)
	f := strings.Fields(s[strings.LastIndexByte(s, ')')+1:]) // the name in front may have spaces
	user, err1 := strconv.ParseFloat(f[11], 64)
	sys, err2 := strconv.ParseFloat(f[12], 64)
	if err1 != nil || err2 != nil {
		return 0, fmt.Errorf("/proc/%d/stat: %q", pid, s)
	}
	return (user + sys) / clockTick, nil
}

// rssOf returns the resident bytes of a process.
func rssOf(pid int) (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(v), " kB"), 64)
			return kb * 1024, err
		}
	}
	return 0, fmt.Errorf("/proc/%d/status has no VmRSS", pid)
}

// ownCPU is this process's user and system seconds.
func ownCPU() float64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

// machineCPU returns the busy and all seconds of the machine's cores, to see
// how much of it other processes took.
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

// A usage has the time and the CPU that a piece of work took.
type usage struct {
	seconds float64
	cpu     float64 // seconds, of the servers
	own     float64 // seconds, of this process
	others  float64 // share of the machine that neither the servers nor the bench took
}

// measure runs f and returns what the servers took meanwhile. Without servers, it measures
// this process.
func measure(f func() error, servers ...*server) (u usage, err error) {
	cpu := func() (sum float64) {
		for _, s := range servers {
			if err == nil {
				var c float64
				c, err = cpuOf(s.pid)
				sum += c
			}
		}
		return sum
	}
	server, own := cpu(), ownCPU()
	busy, all := machineCPU()
	begin := time.Now()
	if err != nil {
		return u, err
	}
	err = f()
	u.seconds = time.Since(begin).Seconds()
	u.own = ownCPU() - own
	u.cpu = cpu() - server
	busyNow, allNow := machineCPU()
	if allNow > all {
		u.others = max(0, busyNow-busy-u.own-u.cpu) / (allNow - all)
	}
	if len(servers) == 0 {
		u.cpu = u.own
	}
	return u, err
}

// raiseFiles lets this process and those that it starts open as many files as
// they may, and returns how many that is.
func raiseFiles() (uint64, error) {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return 0, err
	}
	l.Cur = l.Max
	return l.Cur, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &l)
}
