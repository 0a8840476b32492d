package resourcesync

import "encoding/binary"

// plain returns how many bytes at the start of s are surely plain: ASCII, no control
// character, and none of & < > " and \. Such bytes are written as they are in XML and in
// JSON. plain looks at eight bytes at a time, and may stop up to seven bytes early, so the
// caller looks at each byte that follows. It is good for the text of changes, which is
// nearly always plain.
func plain(s string) int {
	const (
		ones = 0x0101_0101_0101_0101
		high = 0x80 * ones
	)
	n := 0
	for ; n+8 <= len(s); n += 8 {
		x := binary.LittleEndian.Uint64([]byte(s[n : n+8]))
		amp := (x | 0x04*ones) ^ 0x26*ones   // 0 where x has & or "
		angle := (x | 0x02*ones) ^ 0x3e*ones // 0 where x has < or >
		back := x ^ '\\'*ones                // 0 where x has a backslash
		// The highest bit of a byte of each term is set where the byte of x is below
		// 0x20, or the byte of amp, angle or back is 0. A borrow can set it in a higher
		// byte as well, but only above one that is set rightly.
		special := (x-0x20*ones)&^x | (amp-ones)&^amp | (angle-ones)&^angle | (back-ones)&^back
		if (x|special)&high != 0 {
			return n
		}
	}
	return n
}
