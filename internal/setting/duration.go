package setting

import (
	"errors"
	"flag"
	"strconv"
	"strings"
	"time"
)

var errDuration = errors.New("invalid duration; want a number with a unit, such as 90s, 10m, 2h or 90d")

// ParseDuration parses a duration as time.ParseDuration does, optionally preceded by days of 24
// hours: 90d, 1d12h.
func ParseDuration(text string) (time.Duration, error) {
	days, rest, ok := strings.Cut(text, "d")
	if !ok {
		days, rest = "", text
	}
	var all time.Duration
	if ok {
		n, err := strconv.ParseUint(days, 10, 32)
		if err != nil || n > 100_000 {
			return 0, errDuration
		}
		all = time.Duration(n) * 24 * time.Hour
		if rest == "" {
			return all, nil
		}
	}
	d, err := time.ParseDuration(rest)
	if err != nil || ok && d < 0 {
		return 0, errDuration
	}
	return all + d, nil
}

// A duration is a flag.Value that uses ParseDuration.
type duration time.Duration

func (d *duration) String() string { return time.Duration(*d).String() }
func (d *duration) Get() any       { return time.Duration(*d) }

func (d *duration) Set(text string) error {
	v, err := ParseDuration(text)
	*d = duration(v)
	return err
}

// DurationVar defines a duration flag that is parsed by ParseDuration.
func DurationVar(fs *flag.FlagSet, p *time.Duration, name string, value time.Duration, usage string) {
	*p = value
	fs.Var((*duration)(p), name, usage)
}
