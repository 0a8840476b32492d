package fetch

import (
	"fmt"
	"testing"
)

// A memory is what a file would be.
func TestMemory(t *testing.T) {
	m := &Memory{Most: 10}
	for _, text := range []string{"hello ", "all"} {
		if n, err := m.Write([]byte(text)); n != len(text) || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	}
	if _, err := m.Write([]byte("xx")); err != ErrTooLong {
		t.Errorf("the error is %v", err)
	}
	var got []byte
	if _, err := m.Seek(6, 0); err != nil {
		t.Error(err)
	}
	if _, err := fmt.Fscan(m, &got); string(got) != "all" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if err := m.Truncate(2); err != nil || string(m.text) != "he" || m.Truncate(3) == nil {
		t.Errorf("%q, %v", m.text, err)
	}
	if _, err := m.Seek(-1, 1); err == nil {
		t.Error("there is nothing before the beginning")
	}
}
