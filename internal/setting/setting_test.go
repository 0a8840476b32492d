package setting

import "testing"

func TestSize(t *testing.T) {
	for _, test := range []struct {
		text string
		want Size // 0: none
	}{
		{"1024", 1024}, {"1B", 1}, {"64KiB", 64 << 10}, {"3 MiB", 3 << 20}, {"1GiB", 1 << 30}, {"2TiB", 2 << 40},
		{"5kB", 5000}, {"5MB", 5e6}, {"5GB", 5e9}, {"5TB", 5e12}, {" 7 ", 7},
		{"", 0}, {"MiB", 0}, {"-1", 0}, {"1.5GiB", 0}, {"1mib", 0}, {"99999999999TiB", 0}, {"18446744073709551616", 0},
	} {
		var s Size
		if err := s.Decode(test.text); s != test.want || (err == nil) != (test.want > 0) {
			t.Errorf("Decode(%q) = %v, %d", test.text, err, s)
		}
	}
}
