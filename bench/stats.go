//go:build linux

package main

import (
	"slices"
	"strconv"
)

// median returns the middle value; of two in the middle their mean, of none 0.
func median(values []float64) float64 {
	n := len(values)
	if n == 0 {
		return 0
	}
	v := slices.Sorted(slices.Values(values))
	return (v[(n-1)/2] + v[n/2]) / 2
}

// quantile returns the value that a share q of sorted values does not exceed.
func quantile(sorted []uint32, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return float64(sorted[min(int(q*float64(len(sorted))), len(sorted)-1)])
}

// ratios returns ours[i] / floor[i], without those whose floor is nothing.
func ratios(floor, ours []float64) (r []float64) {
	for i := range min(len(floor), len(ours)) {
		if floor[i] > 0 {
			r = append(r, ours[i]/floor[i])
		}
	}
	return r
}

// format writes a number with three digits that count, thousands by comma.
func format(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v < 1:
		return strconv.FormatFloat(v, 'f', 3, 64)
	case v < 10:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case v < 100:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case v >= 10_000: // more digits than three say nothing here
		v = float64(int64(v+50) / 100 * 100)
	}
	s := strconv.FormatInt(int64(v+0.5), 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
