// Package setting parses the types of values that settings and flags have, such as durations, sizes
// and tokens in files.
//
// Which settings exist is defined by the commands: cmd/rshub/config.go, and the flags of rspublish
// and rsmirror.
package setting

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Size is a number of bytes, written with or without a unit: 1024, 64KiB, 50MB.
type Size uint64

var units = []struct {
	name  string
	bytes uint64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1}, {"", 1}}

// Decode parses a size. It implements envconfig.Decoder.
func (s *Size) Decode(text string) error {
	for _, u := range units {
		number, ok := strings.CutSuffix(strings.TrimSpace(text), u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(strings.TrimSpace(number), 10, 64)
		if err != nil || n > 1<<62/u.bytes {
			break
		}
		*s = Size(n * u.bytes)
		return nil
	}
	return fmt.Errorf("invalid size %q; want a number of bytes, or a number with KiB, MiB or GiB", text)
}

// Networks is a comma-separated list of CIDRs.
type Networks []netip.Prefix

// Decode parses networks. It implements envconfig.Decoder.
func (n *Networks) Decode(text string) error {
	for _, part := range splitList(text) {
		p, err := netip.ParsePrefix(part)
		if err != nil {
			return err
		}
		if p.Addr().Is4In6() { // the hub treats such addresses as IPv4, so none would ever match this network
			return fmt.Errorf("%s is an IPv4-mapped IPv6 network; write it as IPv4", p)
		}
		*n = append(*n, p)
	}
	return nil
}

// splitList splits a text at its commas and trims spaces. An empty text has no parts.
func splitList(text string) []string {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	all := strings.Split(text, ",")
	for i := range all {
		all[i] = strings.TrimSpace(all[i])
	}
	return all
}
