package setting

import (
	"errors"
	"flag"
	"io"
	"strings"
	"testing"
	"time"
)

// TestParseFlags parses invalid command lines: the error contains the flag, the value and the
// expected form.
func TestParseFlags(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"-wait 90s -n 3 -q rest": "",
		"-h":                     flag.ErrHelp.Error(),
		"-nope":                  "tool sync has no flag -nope",
		"--nope=3":               "tool sync has no flag -nope",
		"-wait 5":                `-wait "5": want a duration with a unit, such as 90s, 10m or 2h`,
		"-wait":                  "flag needs an argument: -wait",
		"-n many":                `-n "many": want a whole number`,
		"-q=maybe":               `-q "maybe": want true, false or no value`,
		"-size big":              `-size "big": invalid size "big"; want a number of bytes, or a number with KiB, MiB or GiB`,
	} {
		fs := flag.NewFlagSet("tool sync", flag.ContinueOnError)
		fs.SetOutput(io.Discard)
		fs.Duration("wait", time.Second, "")
		fs.Int("n", 1, "")
		fs.Bool("q", false, "")
		fs.Func("size", "", func(s string) error { return new(Size).Decode(s) })
		err := ParseFlags(fs, strings.Fields(args))
		if want == "" && err == nil || err != nil && err.Error() == want && errors.Is(err, flag.ErrHelp) == (args == "-h") {
			continue
		}
		t.Errorf("ParseFlags(%s) = %v, want %s", args, err, want)
	}
}
